// One place that says what goes on, how far it is, and what went wrong.
import { cancel, Refusal } from "./api.js";

export const $ = (id) => document.getElementById(id);

export function alertWords(words) {
  $("alert").textContent = words;
  $("alert").hidden = !words;
}

export function say(words) {
  $("status-words").textContent = words;
}

// Runs a job with its words and its bar. Gives its result, or undefined if it was cancelled or refused.
export async function during(words, job) {
  const started = performance.now();
  const bar = $("status-bar");
  alertWords("");
  say(`${words} …`);
  bar.removeAttribute("value");
  bar.hidden = $("status-cancel").hidden = false;
  document.body.setAttribute("aria-busy", "true");
  try {
    const result = await job((done, of) => {
      bar.max = of;
      bar.value = done;
      say(`${words}: ${done} of ${of}`);
    });
    say(`${words}: done in ${((performance.now() - started) / 1000).toFixed(1)} s`);
    return result;
  } catch (error) {
    if (error.name === "AbortError" || error.status === 409) say(`${words}: cancelled`);
    else if (error instanceof Refusal) {
      say("");
      alertWords(error.message);
    } else throw error;
    return undefined;
  } finally {
    bar.hidden = $("status-cancel").hidden = true;
    document.body.removeAttribute("aria-busy");
  }
}

$("status-cancel").addEventListener("click", cancel);

// The value of a number's field, or an alert in words.
export function numberOf(id, fallback) {
  const field = $(id);
  if (field.value.trim() === "") return fallback;
  if (!field.checkValidity()) {
    const words = `${field.closest("label").textContent.trim()}: ${field.validationMessage}`;
    field.focus();
    throw new Refusal(words, 0);
  }
  return Number(field.value);
}
