// When a person may say yes: half a second after everything was on the screen, and the button still is.

const STEADY = 500;
// Fractions of a pixel do not matter.
const WHOLE = 0.98;

/**
 * Watches the parts of a card and its button. `onChange({ armed, unseen })` is told whenever that changes.
 *
 * A part counts as seen once it was on the screen as a whole. What a closed fold cuts off is not on the screen.
 */
export function arm({ parts, button, onChange }) {
  const unseen = new Set(parts);
  const all = parts.length;
  let shown = false;
  let armed = false;
  let stopped = false;
  let timer;

  const tell = () => onChange({ armed, unseen: unseen.size, all });

  function again() {
    clearTimeout(timer);
    armed = false;
    if (!stopped && shown && unseen.size === 0 && document.visibilityState === "visible") {
      timer = setTimeout(() => {
        armed = true;
        tell();
      }, STEADY);
    }
    tell();
  }

  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, intersectionRatio, isIntersecting } of entries) {
        const whole = isIntersecting && intersectionRatio >= WHOLE;
        if (target === button) {
          shown = whole;
        } else if (whole) {
          unseen.delete(target);
          observer.unobserve(target);
        }
      }
      again();
    },
    { threshold: [0, WHOLE] },
  );
  for (const part of parts) observer.observe(part);
  observer.observe(button);
  document.addEventListener("visibilitychange", again);
  tell();

  return {
    /** Something moved: begin the half second again. */
    again,
    stop() {
      stopped = true;
      observer.disconnect();
      document.removeEventListener("visibilitychange", again);
      again();
    },
    get armed() {
      return armed;
    },
  };
}
