// The page: its parts as tabs, and its address.
import * as address from "./address.js";
import { get } from "./api.js";
import { player } from "./audio.js";
import * as music from "./music.js";
import * as runs from "./runs.js";
import { $, alertWords } from "./status.js";
import * as text from "./text.js";

const parts = { text, music, runs };
const tabs = Object.keys(parts);

function open(name) {
  for (const tab of tabs) {
    const on = tab === name;
    $(tab).hidden = !on;
    $(`tab-${tab}`).setAttribute("aria-selected", String(on));
    $(`tab-${tab}`).tabIndex = on ? 0 : -1;
  }
  parts[name].shown?.();
}

function go() {
  const fields = address.read();
  const name = tabs.includes(fields.get("tab")) ? fields.get("tab") : "text";
  open(name);
  parts[name].restore(fields);
}

for (const tab of tabs) {
  $(`tab-${tab}`).addEventListener("click", () => {
    open(tab);
    parts[tab].remember();
  });
  $(`tab-${tab}`).addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length];
    $(`tab-${next}`).focus();
    $(`tab-${next}`).click();
  });
}

window.latflow = { player }; // for the console

try {
  const about = await get("/api/about");
  for (const part of Object.values(parts)) part.start(about);
  const first = address.read().get("tab");
  for (const tab of tabs) if (tab !== (first ?? "text")) parts[tab].restore(new URLSearchParams());
  go();
  address.onOther(go);
  document.body.dataset.ready = "true";
} catch (error) {
  alertWords(error.message);
}
