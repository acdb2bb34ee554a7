// The page: its views, the token, and the stream that feeds them.
import { $, make, text, fill, rich } from "./dom.js";
import { follow, get, setToken } from "./api.js";
import { seconds, plural, when } from "./format.js";
import { language, load, say } from "./language.js";
import * as charts from "./charts.js";
import * as overview from "./overview.js";
import * as messages from "./messages.js";
import * as checkpoint from "./checkpoint.js";
import * as relays from "./relays.js";

const views = { overview: { show() {} }, messages, checkpoint, relays };
let seen = 0, announced = "", me = null;

// The view is in the address, so that it can be sent to a colleague and the back button works: #messages?status=failed.
function route() {
  const [name, query] = location.hash.slice(1).split("?"), view = views[name] ? name : "overview";
  for (const v of Object.keys(views)) {
    $("view-" + v).hidden = v !== view;
    if (v === view) $("nav-" + v).setAttribute("aria-current", "page"); else $("nav-" + v).removeAttribute("aria-current");
  }
  views[view].show(Object.fromEntries(new URLSearchParams(query || "")));
}

function show(s) {
  seen = Date.now();
  $("stale").hidden = true;
  $("login").hidden = true;
  text("state", s.state, "pill " + s.state);
  who();
  document.body.dataset.lease = s.lease ? s.lease.state : "";
  text("about", [s.version, say`up ${seconds(s.uptime_seconds)}`, ...role(s.lease), ...(me && me.role === "reader" ? [say`you may look, not change`] : [])].join(" · "));
  document.title = (s.problems && s.problems.length ? "(" + s.problems.length + ") " : "") + "canal-outbox";
  problems(s.problems || []);
  if (s.shadow) notice(say`This relay sends nothing (--shadow): ${s.shadow}`);
  charts.add(s);
  if (!$("view-overview").hidden) overview.show(s);
  for (const v of Object.values(views)) if (v.status) v.status(s);
}

// who asks what this token may do. The style sheet hides from others what only an operator may use.
async function who() {
  if (me) return;
  me = {};
  try {
    me = await get("me");
    document.body.dataset.role = me.role;
  } catch { me = null; } // again with the next status
}

// role is which of several relays this one is; one that works without a lease says it in its problems, if it is one.
function role(lease) {
  if (!lease || lease.state === "off" || lease.state === "alone") return [];
  return [lease.state !== "standby" ? say`${lease.state} since ${when(lease.since)}` : lease.active ? say`standby of ${lease.active}` : say`standby`];
}

// The list may change with every count in it; what is spoken is only how many there are.
function problems(list) {
  $("problems-box").hidden = list.length === 0;
  fill("problems", list.map(p => make("li", null, rich(p))));
  const words = list.length ? say`${plural(list.length, "problem")} in the list Needs attention` : "";
  if (words !== announced) { announced = words; text("problems-spoken", words); }
}

function notice(words) {
  $("stale").hidden = false;
  text("stale", words);
}

function lost(e) {
  if (e.status === 401) {
    $("login").hidden = false;
    me = null;
    delete document.body.dataset.role;
    text("state", say`token needed`, "pill waits");
    return;
  }
  text("state", say`disconnected`, "pill bad");
  notice([say`No connection: ${e.message}.`, ...(seen ? [say`What you see is ${seconds((Date.now() - seen) / 1000)} old.`] : []), say`The page tries again by itself.`].join(" "));
}

$("login").onsubmit = e => {
  e.preventDefault();
  setToken($("token").value);
  text("login-said", say`asking with this token; the form goes when it is accepted`);
};
addEventListener("hashchange", () => { route(); $("main").focus({ preventScroll: true }); scrollTo(0, 0); });
// A tab that was in the background, or a machine that slept, shows how old its numbers are until the next ones come.
setInterval(() => { if (seen && Date.now() - seen > 5000 && $("stale").hidden) notice(say`The relay has said nothing for ${seconds((Date.now() - seen) / 1000)}.`); }, 2000);

await load();
$("language").textContent = language() === "zh" ? "English" : "中文";
$("nav-docs").href = say`docs/operations`;
$("language").onclick = () => { localStorage.setItem("language", language() === "zh" ? "en" : "zh"); location.reload(); };
charts.start();
overview.start();
messages.start();
checkpoint.start();
relays.start();
route();
follow(show, lost);
