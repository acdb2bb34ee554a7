// The few ways in which this page changes its document. Nothing here takes HTML: text is text.
import { say, section, told } from "./language.js";

export const $ = id => document.getElementById(id);

// make builds an element: make("li", { class: "bad" }, "text", child).
export function make(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "hidden" || name === "disabled" || name === "checked" || name === "required") e[name] = value;
    else if (value !== undefined && value !== null) e.setAttribute(name, value);
  }
  e.append(...children.flat().filter(c => c !== undefined && c !== null && c !== ""));
  return e;
}

// text changes an element only when it must, so that screen readers stay silent and selections stay.
export function text(id, value, cls) {
  const e = $(id);
  if (e.textContent !== value) e.textContent = value;
  if (cls !== undefined && e.className !== cls) e.className = cls;
}

// fill replaces the children, unless they are the same already.
export function fill(target, children) {
  const e = typeof target === "string" ? $(target) : target, fresh = make(e.tagName);
  fresh.append(...children);
  if (fresh.isEqualNode(shallow(e))) return;
  e.replaceChildren(...fresh.childNodes);
}

function shallow(e) {
  const copy = make(e.tagName);
  copy.append(...[...e.childNodes].map(c => c.cloneNode(true)));
  return copy;
}

export const definitions = pairs => pairs.flatMap(([name, value, cls]) => [make("dt", null, name), make("dd", { class: cls }, value)]);

export const headings = names => make("tr", null, names.map(n => make("th", { scope: "col" }, n)));

// slug is the anchor of a heading, as the handbook's page makes it.
const slug = heading => heading.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replace(/ /g, "-");
// handbook is the address of a section of the handbook, in the language of the page.
export function handbook(page, english) {
  const [file, heading] = section(page, english);
  return "docs/" + file + "#" + slug(heading);
}

// rich is a sentence of the relay: links for references to the handbook and to lists of messages, and code for what is in backticks.
export function rich(english) {
  const sentence = told(english), out = [], pattern = /docs\/((?:operations|zh)\/[a-z-]+)\.md(?:, ([A-Z][\w '-]*[\w'])|，([^；，]+))|canal-outbox messages list --table (\S+?)(?=[;,；，]? |$|[;；])|`([^`]+)`/g;
  let from = 0;
  for (const found of sentence.matchAll(pattern)) {
    out.push(sentence.slice(from, found.index));
    const heading = found[2] || found[3];
    if (heading) out.push(make("a", { href: "docs/" + found[1] + "#" + slug(heading) }, say`handbook: ${heading}`));
    else if (found[4]) out.push(make("a", { href: "#messages?" + new URLSearchParams({ status: "failed", table: found[4] }) }, say`FAILED messages of ${found[4]}`));
    else out.push(make("code", null, found[5]));
    from = found.index + found[0].length;
  }
  out.push(sentence.slice(from));
  return out;
}

// confirm shows a dialog and answers whether it was agreed to. The browser keeps the focus inside and gives it back.
export function confirm(title, body, yes, danger) {
  const dialog = $("dialog");
  text("dialog-title", title);
  $("dialog-body").replaceChildren(...body);
  $("dialog-yes").textContent = yes || "";
  $("dialog-yes").hidden = !yes;
  $("dialog-yes").className = danger ? "danger" : "primary";
  $("dialog-no").textContent = yes ? say`Cancel` : say`Close`;
  return new Promise(answer => {
    dialog.onclose = () => answer(dialog.returnValue === "yes");
    dialog.returnValue = "no";
    dialog.showModal();
  });
}
