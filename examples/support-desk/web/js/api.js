// Requests, always with the token in their header, and streams of events that come back by themselves.

import { parse } from "./json.js";

/** A request that got no answer, or one that cannot be read. */
export class NoAnswer extends Error {}

/** What can be asked for with this token. */
export function api(token) {
  const authorization = { Authorization: `Bearer ${token}` };

  async function ask(method, path, { body, headers = {}, signal } = {}) {
    const init = { method, headers: { ...authorization, ...headers }, cache: "no-store", credentials: "omit", redirect: "error", signal };
    if (body !== undefined) {
      init.headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(body);
    }
    try {
      return await fetch(path, init);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new NoAnswer("the desk does not answer");
    }
  }

  async function json(method, path, options) {
    const response = await ask(method, path, options);
    const text = await response.text();
    try {
      return { status: response.status, headers: response.headers, body: text ? parse(text) : null };
    } catch {
      throw new NoAnswer(`the desk answered ${response.status} with something that is not JSON`);
    }
  }

  return { ask, get: (path, options) => json("GET", path, options), post: (path, options) => json("POST", path, options) };
}

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;
// The server says something every 15 seconds; a stream that is silent for this long is dead.
const SILENCE = 40_000;

/**
 * Reads a stream of events, and begins again whenever it ends, with longer and longer pauses while it cannot be had.
 *
 * `open(signal)` makes the request; `onEvent({ event, data })` and `onState("open" | "lost" | "refused")` are told.
 */
export async function follow({ open, onEvent, onState, signal }) {
  let pause = FIRST_PAUSE;
  while (!signal.aborted) {
    try {
      const response = await open(signal);
      if (response.status === 401) return onState("refused");
      if (!response.ok) throw new NoAnswer(`the desk answered ${response.status}`);
      onState("open");
      for await (const event of events(response.body, signal)) {
        pause = FIRST_PAUSE;
        onEvent(event);
      }
    } catch (error) {
      if (signal.aborted) return undefined;
      console.info("the stream of approvals ended:", error.message);
    }
    if (signal.aborted) return undefined;
    onState("lost");
    await rest(pause * (0.75 + Math.random() / 2), signal);
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
  return undefined;
}

function rest(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** The events of a stream, by the rules of the HTML standard, §9.2.6, as far as they are used here. */
async function* events(body, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  let event = "message";
  let data = [];
  try {
    while (true) {
      const { done, value } = await withinSilence(reader.read(), signal);
      if (done) return;
      const lines = (buffer + value).split(/\r?\n/);
      buffer = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (data.length > 0) yield { event, data: parse(data.join("\n")) };
          event = "message";
          data = [];
        } else if (line.startsWith("event:")) {
          event = line.slice(6).trimStart();
        } else if (line.startsWith("data:")) {
          data.push(line.slice(5).replace(/^ /, ""));
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function withinSilence(read, signal) {
  let timer;
  const silence = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new NoAnswer("it was silent for too long")), SILENCE);
    signal.addEventListener("abort", () => reject(new NoAnswer("it was closed")), { once: true });
  });
  return Promise.race([read, silence]).finally(() => clearTimeout(timer));
}
