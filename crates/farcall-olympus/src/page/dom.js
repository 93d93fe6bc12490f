// Makes elements. Text of others becomes text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an HTML element: properties that begin with `on` are listeners, others are attributes. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Makes an SVG element. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Replaces what an element contains. */
export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
}

/** Returns the element with an id. */
export function by(id) {
  return document.getElementById(id);
}

/** Says something to people who use a screen reader. */
export function announce(text) {
  by("announcement").textContent = text;
}

/** Shows a message for some seconds. Returns it, so that it can be removed before. */
export function notify(text, kind = "note") {
  const message = h("p", { class: `message ${kind}`, role: kind === "error" ? "alert" : "status" }, text);
  const close = h("button", { class: "plain", "aria-label": "Close the message", onclick: () => message.remove() }, "×");
  message.append(close);
  const messages = by("messages");
  messages.append(message);
  while (messages.children.length > 4) messages.firstChild.remove();
  setTimeout(() => message.remove(), kind === "error" ? 15000 : 5000);
  return message;
}

/** Makes a field with its label. */
export function field(label, input, hint) {
  input.id ||= `field-${(field.count = (field.count ?? 0) + 1)}`;
  const parts = [h("label", { for: input.id }, label), input];
  if (hint) {
    const id = `${input.id}-hint`;
    input.setAttribute("aria-describedby", id);
    parts.push(h("small", { id, class: "hint" }, hint));
  }
  return h("div", { class: "field" }, ...parts);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child != null && child !== false) element.append(child);
  }
  return element;
}
