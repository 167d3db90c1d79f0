// Elements and text. Whatever comes from outside becomes text nodes, never markup.

/** Makes an element. Properties are attributes; children are nodes or text. */
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(attribute, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

// What a reader would not see, or see in another place: control and format characters (bidi, zero-width, tags),
// unassigned and private ones, line and paragraph separators, blanks that are not the space, what fonts leave out, and
// marks that have nothing to stand on or stand in heaps.
const HIDDEN_CLASS = String.raw`[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?! )\p{Zs}`;
const HIDDEN = new RegExp(String.raw`(?:${HIDDEN_CLASS})\p{M}*|^\p{M}+|\p{M}{4,}`, "gu");

const SHORT = new Map([["\n", "\\n"], ["\r", "\\r"], ["\t", "\\t"]]);

function escaped(character) {
  return SHORT.get(character) ?? `\\u{${character.codePointAt(0).toString(16).toUpperCase()}}`;
}

function unicode(character) {
  return character.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
}

/** Text as somebody wrote it: a backslash is doubled, so that no two texts look the same. */
const PLAIN = { plain: (text) => text.replaceAll("\\", "\\\\"), hidden: escaped, silentBreaks: false };
/** Indented JSON: its line breaks are our own, and it has escapes of its own. */
const JSON_TEXT = { plain: (text) => text, hidden: unicode, silentBreaks: true };

/** Splits text into plain and hidden pieces: `{ text, hidden, breaks }`. Hidden ones are spelt out. */
function pieces(text, { plain, hidden, silentBreaks } = PLAIN) {
  const found = [];
  const keep = (part) => part && found.push({ text: plain(part), hidden: false });
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    keep(text.slice(end, match.index));
    for (const character of match[0]) {
      const breaks = character === "\n";
      const silent = breaks && silentBreaks;
      found.push({ text: silent ? "\n" : hidden(character), hidden: !silent, breaks });
    }
    end = match.index + match[0].length;
  }
  keep(text.slice(end));
  return found;
}

function nodes({ text, hidden, breaks }) {
  if (!hidden) return [document.createTextNode(text)];
  const mark = el("span", { class: breaks ? "escape break" : "escape" }, text);
  return breaks ? [mark, document.createTextNode("\n")] : [mark];
}

/** Our own lines, with perhaps something in between that is not. */
const LINES = { ...PLAIN, silentBreaks: true };

/** Text from outside, with everything hidden spelt out. */
export function visible(text) {
  return fragment(pieces(String(text)));
}

/** Lines that the desk wrote: as `visible`, and their breaks are plain breaks. */
export function visibleLines(text) {
  return fragment(pieces(String(text), LINES));
}

function fragment(all) {
  const made = document.createDocumentFragment();
  made.append(...all.flatMap(nodes));
  return made;
}

/** How many characters of a text would not be seen, line breaks left out. */
export function hiddenCount(text) {
  return pieces(text).filter((piece) => piece.hidden && !piece.breaks).length;
}

const CHUNK = 160;

/** A long text in small elements, so that it is known of each whether it was on the screen. */
export function chunks(text, isJson = false) {
  const made = [];
  let current = [];
  let length = 0;
  const close = () => {
    if (current.length > 0) made.push(el("span", { class: "chunk" }, ...current));
    current = [];
    length = 0;
  };
  for (const piece of pieces(text, isJson ? JSON_TEXT : PLAIN)) {
    for (const part of piece.hidden || piece.breaks ? [piece] : cut(piece)) {
      current.push(...nodes(part));
      length += part.text.length;
      if (part.breaks || length >= CHUNK) close();
    }
  }
  close();
  return made;
}

const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });

/** Cuts a long plain piece between what a reader sees as characters. */
function cut(piece) {
  if (piece.text.length <= CHUNK) return [piece];
  const parts = [];
  let part = "";
  for (const { segment } of graphemes.segment(piece.text)) {
    part += segment;
    if (part.length >= CHUNK) {
      parts.push({ text: part, hidden: false });
      part = "";
    }
  }
  if (part) parts.push({ text: part, hidden: false });
  return parts;
}

/** Indented JSON with what would be hidden written in JSON's own escapes. */
export function visibleJson(text) {
  return pieces(text, JSON_TEXT).map((piece) => piece.text).join("");
}
