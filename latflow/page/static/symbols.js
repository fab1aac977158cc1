// How symbols are written and coloured.

export function shown(symbol) {
  return { " ": "␣", "\n": "⏎", "\t": "⇥" }[symbol] ?? symbol;
}

export function spoken(symbol) {
  return { " ": "space", "\n": "new line", "\t": "tab", ".": "full stop", ",": "comma" }[symbol] ?? symbol;
}

const STOPS = [[0, [255, 255, 255]], [0.37, [255, 221, 160]], [1, [238, 108, 60]]];

// White to orange over 0 to 8 bits: dark letters stay readable on all of it.
export function colour(bits) {
  const share = Math.min(1, Math.max(0, bits / 8));
  const above = STOPS.findIndex(([at]) => at >= share && at > 0);
  const [[from, low], [to, high]] = [STOPS[above - 1], STOPS[above]];
  const part = (share - from) / (to - from);
  return `rgb(${low.map((value, i) => Math.round(value + part * (high[i] - value))).join(",")})`;
}
