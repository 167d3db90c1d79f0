// JSON that keeps every digit: a number that JavaScript would round stays the text that it was.

/** Whether this browser can. */
export const supported = typeof JSON.rawJSON === "function";

/** Parses JSON text. Numbers that would change are kept as raw JSON. */
export function parse(text) {
  return JSON.parse(text, (_name, value, context) =>
    typeof value === "number" && context.source !== JSON.stringify(value) ? JSON.rawJSON(context.source) : value,
  );
}

/** Whether a value is an object with members, and neither an array nor a raw number. */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !JSON.isRawJSON(value);
}

/** The value as indented text. */
export function pretty(value) {
  return JSON.stringify(value, null, 2);
}
