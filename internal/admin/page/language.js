// The language of the page: English, or another one by a catalogue that the relay has. Texts of the page are say`English ${value}`; sentences
// of the relay come in English and go through told. What the catalogue lacks stays English.
let page = new Map(), words = new Map(), patterns = [], sections = new Map(); // maps: a text may be "constructor"
const known = new Map();

// language is what the reader has chosen, else that of the browser.
export const language = () => localStorage.getItem("language") || (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");

export async function load() {
  document.documentElement.lang = "en";
  if (language() !== "zh") return;
  try {
    const answer = await fetch("assets/zh.json");
    if (!answer.ok) return;
    const catalogue = await answer.json();
    page = new Map(Object.entries(catalogue.page));
    words = new Map(Object.entries(catalogue.words));
    sections = new Map(Object.entries(catalogue.sections));
    patterns = catalogue.patterns.map(([from, to]) => [new RegExp(from), to]);
    document.documentElement.lang = "zh-CN";
    still(document.body);
  } catch { /* the page works in English */ }
}

// still translates what the HTML file has.
function still(root) {
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let n = texts.nextNode(); n; n = texts.nextNode()) n.data = n.data.replace(/\S(?:.*\S)?/s, text => page.get(text) || text);
  for (const e of root.querySelectorAll("[aria-label]")) e.setAttribute("aria-label", page.get(e.getAttribute("aria-label")) || e.getAttribute("aria-label"));
}

function put(format, values) {
  let next = 0;
  return format.replace(/%(?:\[(\d+)\])?s|%%/g, (verb, index) => verb === "%%" ? "%" : String(values[index ? index - 1 : next++] ?? ""));
}

// say is a text of the page with its values.
export const say = (parts, ...values) => put(page.get(parts.join("%s")) || parts.join("%s"), values);

// counted is a number, as text, of things: counted("3", "rows").
export const counted = (number, things) => say(["", " " + things], number);

// section is the file and the heading of a section of the handbook for operators.
export const section = (file, heading) => sections.has(heading) ? [sections.get(heading)[0].replace(/\.md$/, ""), sections.get(heading)[1]] : ["operations/" + file, heading];

// told is a sentence of the relay, which has made it of a format of the catalogue.
export function told(sentence) {
  if (!patterns.length || !sentence) return sentence;
  if (!known.has(sentence)) {
    if (known.size > 1000) known.clear(); // counts in sentences change
    known.set(sentence, translate(sentence)[0].replace(/docs\/operations(?:\/[a-z-]+)?\.md, ([A-Z][\w '-]*[\w'])/g, (all, heading) => sections.has(heading) ? "docs/" + sections.get(heading).join("，") : all));
  }
  return known.get(sentence);
}

// translate is the same as Catalogue.sentence in internal/translate: the translation, and whether there is one.
function translate(sentence) {
  if (words.has(sentence)) return [words.get(sentence), true];
  for (const [from, to] of patterns) {
    const found = sentence.match(from);
    if (found) return [put(to, found.slice(1).map(part => part.includes(" ") ? translate(part)[0] : part)), true];
  }
  const parts = sentence.split(", ");
  if (parts.length === 1) return [sentence, false];
  const first = translate(parts[0]);
  return first[1] ? [[first[0], ...parts.slice(1).map(part => translate(part)[0])].join("，"), true] : [sentence, false];
}
