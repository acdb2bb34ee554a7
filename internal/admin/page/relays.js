// The view of all relays: this one and those that admin.peers names, one line each, those with problems first.
import { $, make, fill, text, headings, rich } from "./dom.js";
import { get } from "./api.js";
import { say, told } from "./language.js";
import { number, seconds, perSecond, plural } from "./format.js";

let own = null, peers = null, asking = false;

export function start() {
  $("view-relays").append(make("section", { class: "card", "aria-labelledby": "h-relays" }, make("h2", { id: "h-relays" }, say`Relays`), make("p", { id: "r-said", class: "said", role: "status" }),
    make("div", { class: "fields" }, make("label", { class: "search" }, say`Address, state or problem contains`, make("input", { id: "r-filter", type: "search", placeholder: say`any`, autocomplete: "off", spellcheck: "false", oninput: draw }))),
    make("p", { id: "r-total" }),
    make("div", { class: "scroll words", tabindex: "0", role: "region", "aria-labelledby": "h-relays" }, make("table", null, make("thead", null, headings(["relay", say`state`, say`lag`, say`published`, say`pending`, say`FAILED`, say`up`, say`problems`])), make("tbody", { id: "r-rows" })))));
  setInterval(() => { if (!$("view-relays").hidden && !document.hidden) ask(); }, 5000);
}

export function show() { ask(); }

// status is of this relay; the first one is asked whether there are others.
export function status(s) {
  const rows = name => (s.tables || []).reduce((n, t) => n + ((t.rows || {})[name] || 0), 0);
  own = { url: "this one", state: s.state, version: s.version, uptime_seconds: s.uptime_seconds, lag_seconds: s.source.lag_seconds, rate_per_second: s.throughput.rate_per_second, pending_rows: rows("pending"), failed_rows: rows("failed"), problems: s.problems || [], error: "" };
  if (peers === null) ask(); else if (!$("view-relays").hidden) draw();
}

async function ask() {
  if (asking) return;
  asking = true;
  try {
    peers = await get("peers");
    $("nav-relays").hidden = peers.length === 0;
    text("r-said", peers.length ? "" : say`No other relay is named: list them in admin.peers.`, "said");
    draw();
  } catch (e) {
    text("r-said", e.message, "said bad");
  }
  asking = false;
}

// badness orders relays: no answer, stuck, degraded, the others.
const badness = r => r.error ? 3 : r.state === "stuck" ? 2 : r.state === "working" || r.state === "standby" ? 0 : 1;

function draw() {
  const all = [...(own ? [own] : []), ...(peers || [])].sort((a, b) => badness(b) - badness(a) || (b.lag_seconds || 0) - (a.lag_seconds || 0) || (a.url < b.url ? -1 : 1));
  const wanted = $("r-filter").value.trim().toLowerCase();
  const list = all.filter(r => [r.url, r.error ? "no answer" : r.state, r.error, ...r.problems].some(s => s.toLowerCase().includes(wanted)));
  const sum = name => list.reduce((n, r) => n + (r[name] || 0), 0);
  text("r-total", say`${wanted ? say`${number(list.length)} of ${plural(all.length, "relay")}` : plural(all.length, "relay")}, ${number(list.filter(r => badness(r) > 0).length)} with problems; ${perSecond(sum("rate_per_second"))} published, ${number(sum("pending_rows"))} pending, ${number(sum("failed_rows"))} FAILED`);
  fill("r-rows", list.map(r => make("tr", null,
    make("td", { class: "wrap" }, r === own ? make("strong", null, say`this one`) : make("a", { href: r.url, rel: "noopener" }, r.url)),
    make("td", null, make("span", { class: "pill " + (r.error ? "bad" : r.state) }, r.error ? say`no answer` : r.state)),
    ...(r.error ? [make("td", { class: "wrap bad", colspan: "6" }, r.error)] : [
      make("td", null, seconds(r.lag_seconds)), make("td", null, perSecond(r.rate_per_second)), make("td", null, number(r.pending_rows)), make("td", { class: r.failed_rows ? "bad" : null }, number(r.failed_rows)), make("td", null, seconds(r.uptime_seconds)),
      make("td", { class: "wrap" }, r.problems.length === 0 ? say`none` : [make("b", null, plural(r.problems.length, "problem") + ": "), ...rich(r.problems[0]), r.problems.length > 1 ? " …" : ""])]))));
}
