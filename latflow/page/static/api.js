// Requests to the server. A client has one job at a time: what the user asked for goes before colours and surprises,
// which wait for it, and of which only the latest counts.

const client = crypto.randomUUID ? crypto.randomUUID() : Array.from(crypto.getRandomValues(new Uint8Array(16)),
  (byte) => byte.toString(16).padStart(2, "0")).join("");

export class Refusal extends Error {
  constructor(words, status) {
    super(words);
    this.status = status;
  }
}

async function refusal(response) {
  let words = `the server answered ${response.status}`;
  try {
    words = (await response.json()).error ?? words;
  } catch { /* no JSON: the status says all */ }
  return new Refusal(words, response.status);
}

export async function get(address) {
  const response = await fetch(address);
  if (!response.ok) throw await refusal(response);
  return response.json();
}

async function post(address, type, body, signal) {
  let response;
  try {
    response = await fetch(address, { method: "POST", body, signal,
      headers: { "Content-Type": type, "X-Latflow-Client": client } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("the server does not answer; is `latflow page` still running?", 0);
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

// Lines of JSON as they come; the last has the result or an error.
async function read(response, onProgress) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Refusal("the server broke off", 0);
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const event = JSON.parse(line);
      if (event.error) throw new Refusal(event.error, event.status);
      if (event.progress) onProgress?.(...event.progress);
      else return { ...event.result, remarks: event.remarks };
    }
  }
}

let front = null; // what the user asked for
let back = null; // colours and surprises
const idle = [];

function leave() {
  front = null;
  for (const wake of idle.splice(0)) wake();
}

export function cancel() {
  front?.abort();
}

export const busy = () => front !== null;

async function ask(address, type, body, onProgress) {
  front?.abort();
  back?.abort();
  const own = new AbortController();
  front = own;
  try {
    const response = await post(address, type, body, own.signal);
    if (response.headers.get("content-type").startsWith("application/octet-stream")) return await response.blob();
    return await read(response, onProgress);
  } finally {
    if (front === own) leave();
  }
}

export const work = (kind, fields, onProgress) =>
  ask(`/api/${kind}`, "application/json", JSON.stringify(fields), onProgress);

export const readMidi = (model, bytes, onProgress) =>
  ask(`/api/music/read?model=${encodeURIComponent(model)}`, "audio/midi", bytes, onProgress);

// The latest of these alone; null if another came before it was answered.
export async function beside(kind, fields) {
  back?.abort();
  const own = new AbortController();
  back = own;
  while (front) await new Promise((wake) => idle.push(wake));
  if (back !== own) return null;
  try {
    return await read(await post(`/api/${kind}`, "application/json", JSON.stringify(fields), own.signal));
  } catch (error) {
    if (error.name === "AbortError" || error.status === 409) return null;
    throw error;
  } finally {
    if (back === own) back = null;
  }
}
