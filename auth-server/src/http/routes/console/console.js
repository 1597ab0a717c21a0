// The console. Text is only ever set as text; the token lives in this variable and nowhere else.
"use strict";

let token = null;
let settings = { context: "", targets: [], reasons: {} };

const $ = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Text of ours in which backticks mark code.
function withCode(name, text) {
  const made = element(name);
  text.split("`").forEach((part, place) => made.append(place % 2 ? element("code", part) : part));
  return made;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function reasonOf(text) {
  try {
    return JSON.parse(text).data.reason;
  } catch {
    return undefined;
  }
}

// ---- what an answer looks like ----

function remedy(reason) {
  const box = element("div", undefined, "notice");
  const title = element("p");
  title.append(element("strong", reason));
  box.append(title);
  const known = Object.hasOwn(settings.reasons, reason) ? settings.reasons[reason] : undefined;
  if (known) box.append(withCode("p", known.cause), withCode("p", "What to do: " + known.remedy));
  return box;
}

function show(place, answer, body, milliseconds) {
  const parts = [];
  const state = element("p", answer.status + " " + answer.statusText, "state " + (answer.ok ? "good" : "bad"));
  parts.push(state, element("span", " in " + milliseconds + " ms", "quiet"));
  const reason = answer.ok ? undefined : reasonOf(body);
  if (typeof reason === "string") parts.push(remedy(reason));
  const challenge = answer.headers.get("WWW-Authenticate");
  if (challenge) parts.push(element("pre", "WWW-Authenticate: " + challenge));
  if (body) {
    const text = element("pre", pretty(body).slice(0, 20000));
    text.tabIndex = 0;
    parts.push(text);
  }
  place.replaceChildren(...parts);
}

function showFailure(place, url) {
  const box = element("div", undefined, "notice");
  box.append(
    element("p", "No answer that this page may read from " + url),
    withCode("p", "Either nobody answers there, or the answer is not for this page: the sidecar needs `--cors-origin " + location.origin +
      "`, this server `--console-target` with the sidecar's origin, and a service answers for itself (CORS)."),
  );
  place.replaceChildren(element("p", "No answer", "state bad"), box);
}

async function ask(place, url, request) {
  const began = performance.now();
  try {
    const answer = await fetch(url, { ...request, credentials: "omit", cache: "no-store", redirect: "error" });
    const body = await answer.text();
    show(place, answer, body, Math.round(performance.now() - began));
    return { ok: answer.ok, body };
  } catch {
    showFailure(place, url);
    return { ok: false };
  }
}

// ---- signing in ----

async function signIn(event) {
  event.preventDefault();
  const place = $("sign-in-result");
  const answer = await ask(place, settings.context + "/oauth/jwt/token", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ username: $("username").value, password: $("password").value }),
  });
  $("password").value = "";
  if (!answer.ok) return;
  token = JSON.parse(answer.body).data.access_token;
  place.replaceChildren(element("p", "Signed in", "state good"));
  showToken();
}

function decoded(part) {
  const bytes = Uint8Array.from(atob(part.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(bytes));
}

function showToken() {
  $("token").hidden = token === null;
  $("no-token").hidden = token !== null;
  if (token === null) return;
  const [header, claims] = token.split(".").map((part, place) => (place < 2 ? decoded(part) : null));
  $("token-header").textContent = JSON.stringify(header, null, 2);
  $("token-claims").textContent = JSON.stringify(claims, null, 2);
  const left = Math.round(claims.exp - Date.now() / 1000);
  const state = $("token-state");
  state.className = "state " + (left > 0 ? "good" : "bad");
  state.textContent = left > 0 ? "Valid until " + new Date(claims.exp * 1000).toLocaleString() : "Expired";
}

function signOut() {
  token = null;
  $("sign-in-result").replaceChildren();
  showToken();
  $("username").focus();
}

async function copy() {
  await navigator.clipboard.writeText(token);
  $("copy").textContent = "Copied";
}

// ---- calling ----

function call(event) {
  event.preventDefault();
  const target = $("target").value;
  const url = new URL($("path").value, target);
  // To a browser "//elsewhere" is another host: the token goes to the target or nowhere.
  if (url.origin !== target) {
    $("call-result").replaceChildren(element("p", "Not sent: this path leads to " + url.origin, "state bad"));
    return undefined;
  }
  const headers = { Accept: "application/json" };
  if (token !== null && $("with-token").checked) headers.Authorization = "Bearer " + token;
  return ask($("call-result"), url, { method: $("method").value, headers });
}

// The first segment is the application's context path.
function whoAmI(event) {
  const target = $("target").value;
  const context = target === location.origin ? settings.context : "/" + $("path").value.split("/")[1];
  $("method").value = "GET";
  $("path").value = (context === "/" ? "" : context) + "/current/user/details";
  return call(event);
}

// ---- the start ----

function addTarget(origin, label) {
  const option = element("option", label);
  option.value = origin;
  $("target").append(option);
}

// A link may say what to call: #target=http://127.0.0.1:8080&path=/orders/42
function prefill() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const target = wanted.get("target");
  if (settings.targets.includes(target)) $("target").value = target;
  const path = wanted.get("path");
  if (path && path.startsWith("/")) $("path").value = path;
}

async function start() {
  settings = await (await fetch("console.json", { cache: "no-store" })).json();
  settings.targets.forEach((origin) => addTarget(origin, "sidecar " + origin));
  addTarget(location.origin, "this auth server");
  $("no-targets").hidden = settings.targets.length > 0;
  if (settings.targets.length === 0) $("path").value = settings.context + "/current/user/details";
  prefill();
  $("sign-in").addEventListener("submit", signIn);
  $("call").addEventListener("submit", call);
  $("who-am-i").addEventListener("click", whoAmI);
  $("sign-out").addEventListener("click", signOut);
  $("copy").addEventListener("click", copy);
  document.body.dataset.ready = "yes";
}

start();
