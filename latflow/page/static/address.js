// What is on the page, in the part of the address behind #: inputs, what was asked, and the seed. So an address that
// is opened again gives the same result.

export function read() {
  return new URLSearchParams(location.hash.slice(1));
}

let written = null;

export function write(fields) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) found.set(name, value === true ? "1" : value);
  }
  written = `#${found}`;
  history.replaceState(null, "", written);
}

// Tells when somebody else changed it: another address typed, or a link.
export function onOther(tell) {
  addEventListener("hashchange", () => {
    if (location.hash !== written) tell();
  });
}
