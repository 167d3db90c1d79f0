// A form from a tool's input schema: strings, choices, numbers, switches.

import { el, visible } from "./text.js";

// From this length on, text gets more than one line.
const LONG = 200;

/** The fields of a schema, in its order; `read()` gives the arguments. */
export function form(schema) {
  const required = new Set(schema.required ?? []);
  const names = Object.keys(schema.properties ?? {});
  // Schemas come with sorted names; what must be given comes first, and short text before long.
  names.sort((one, other) => required.has(other) - required.has(one) || isLong(schema, one) - isLong(schema, other));
  const fields = names.map((name) => field(name, schema.properties[name], required.has(name)));
  const element = el("div", { class: "fields" }, ...fields.map(({ element }) => element));
  if (fields.length === 0) element.append(el("p", { class: "help" }, "This tool takes no arguments."));
  const read = () => {
    const given = fields.map(({ name, read }) => [name, read()]);
    return Object.fromEntries(given.filter(([, value]) => value !== undefined));
  };
  return { element, read };
}

function isLong(schema, name) {
  return (schema.properties[name].maxLength ?? 0) > LONG;
}

function kindOf(schema) {
  const kinds = [schema.type].flat().filter((kind) => kind !== "null");
  return Array.isArray(schema.enum) ? "enum" : kinds[0];
}

function field(name, schema, required) {
  const id = `field-${name}`;
  const { input, read } = control(id, schema, required);
  const helpId = `${id}-help`;
  input.setAttribute("aria-describedby", helpId);
  if (required) input.setAttribute("aria-required", "true");
  const label = el("label", { for: id }, visible(name));
  const help = el("p", { class: "help", id: helpId }, visible([schema.description, limits(schema, required)].filter(Boolean).join(" ")));
  const classes = kindOf(schema) === "boolean" ? "field switch" : "field";
  return { name, read, element: el("div", { class: classes }, label, input, help) };
}

function limits({ minLength, maxLength, minimum, maximum }, required) {
  const told = [];
  if (maxLength !== undefined) told.push(`${minLength ?? 0} to ${maxLength} characters`);
  if (minimum !== undefined) told.push(`at least ${minimum}`);
  if (maximum !== undefined) told.push(`at most ${maximum}`);
  if (!required) told.push("optional");
  return told.length > 0 ? `(${told.join(", ")})` : "";
}

function control(id, schema, required) {
  switch (kindOf(schema)) {
    case "enum":
      return choice(id, schema, required);
    case "boolean":
      return flag(id);
    case "integer":
    case "number":
      return number(id, schema, required);
    case "string":
      return text(id, schema, required);
    default:
      return unsupported(id);
  }
}

function text(id, schema, required) {
  const long = (schema.maxLength ?? 0) > LONG;
  const input = long ? el("textarea", { id, rows: "5" }) : el("input", { id, type: "text" });
  return { input, read: () => (input.value === "" && !required ? undefined : input.value) };
}

function number(id, schema, required) {
  const input = el("input", { id, type: "number", step: kindOf(schema) === "integer" ? "1" : "any" });
  // What is no number goes as it is, for the desk to refuse; what JavaScript would round goes digit by digit.
  const read = () => {
    const given = input.value;
    if (given === "") return required ? null : undefined;
    return String(Number(given)) === given ? Number(given) : JSON.rawJSON(given);
  };
  return { input, read };
}

function flag(id) {
  const input = el("input", { id, type: "checkbox" });
  return { input, read: () => input.checked };
}

function choice(id, schema, required) {
  const options = schema.enum.map((value, index) => el("option", { value: index }, visible(String(value))));
  if (!required) options.unshift(el("option", { value: "" }, "(not given)"));
  const input = el("select", { id }, ...options);
  return { input, read: () => (input.value === "" ? undefined : schema.enum[Number(input.value)]) };
}

function unsupported(id) {
  const input = el("input", { id, type: "text", disabled: true, value: "this page has no field for such a value" });
  return { input, read: () => undefined };
}
