// The relay's API: requests that say what went wrong, and the stream of its status.
import { say, told } from "./language.js";

let token = sessionStorage.getItem("token") || "";
const patience = 20000; // ms, for an answer

export class Refused extends Error {
  constructor(message, code, status) { super(message); this.code = code; this.status = status; }
}

export function setToken(value) { token = value; sessionStorage.setItem("token", value); }

const headers = more => Object.assign(token ? { Authorization: "Bearer " + token } : {}, more);

export async function call(method, path, body) {
  const options = { method, headers: headers(body ? { "Content-Type": "application/json" } : {}), signal: AbortSignal.timeout(patience) };
  if (body) options.body = JSON.stringify(body);
  let response;
  try {
    response = await fetch("api/v1/" + path, options);
  } catch (e) {
    throw new Refused(e.name === "TimeoutError" ? say`the relay gave no answer within ${patience / 1000} s` : say`the relay does not answer`, "away", 0);
  }
  let answer = null;
  try { answer = await response.json(); } catch { /* said below */ }
  if (!response.ok) throw refusal(response, answer);
  if (answer === null) throw new Refused(say`the relay's answer is not JSON`, "", response.status);
  return answer;
}

function refusal(response, answer) {
  const said = answer && answer.error;
  return new Refused(said ? said.message : say`the relay answered ${response.status}` + " " + response.statusText, said ? said.code : "", response.status);
}

// download saves an answer as a file. A link alone could not send the token.
export async function download(path, name) {
  const response = await fetch("api/v1/" + path, { headers: headers() });
  if (!response.ok) throw refusal(response, await response.json().catch(() => null));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

export const get = (path, query) => call("GET", path + search(query));
export const post = (path, body) => call("POST", path, body || {});

function search(query) {
  const q = new URLSearchParams(Object.entries(query || {}).filter(([, v]) => v !== "" && v !== undefined && v !== null)).toString();
  return q ? "?" + q : "";
}

// follow calls show with each status, for ever, and lost when there is none. EventSource cannot send a token, so the stream is
// read by hand. A stream that says nothing for a while is dropped: a relay that hangs does not close its connections.
export async function follow(show, lost) {
  for (let wait = 500; ;) {
    try {
      await stream(status => { wait = 500; show(status); });
      lost(new Refused(say`the relay closed the stream`, "away", 0));
    } catch (e) {
      lost(e);
    }
    await new Promise(wake => setTimeout(wake, wait));
    wait = Math.min(wait * 1.5, 5000);
  }
}

const silence = 15000;

async function stream(show) {
  const ends = new AbortController();
  let watchdog = setTimeout(() => ends.abort(), silence);
  try {
    const response = await fetch("api/v1/events", { headers: headers(), signal: ends.signal });
    if (response.status === 401) throw new Refused(say`token needed`, "unauthorized", 401);
    if (!response.ok) throw new Refused(say`the relay answered ${response.status}`, "", response.status);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(() => ends.abort(), silence);
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const data = part.split("\n").find(l => l.startsWith("data: "));
        if (data) show(JSON.parse(data.slice(6)));
      }
    }
  } catch (e) {
    if (e instanceof Refused) throw e;
    throw new Refused(ends.signal.aborted ? say`the relay has said nothing for ${silence / 1000} s` : say`the relay does not answer`, "away", 0);
  } finally {
    clearTimeout(watchdog);
    ends.abort();
  }
}
