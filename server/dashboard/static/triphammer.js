// What the pages do with JavaScript beyond htmx: copy buttons and keys. Without it everything
// can be read and every form works.
"use strict";

// Copy: a button with data-copy="ID" copies the text of that element; alone, that of the
// element before it.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const from = button.dataset.copy ? document.getElementById(button.dataset.copy) : button.previousElementSibling;
  if (!from) return;
  const was = button.textContent;
  try {
    await navigator.clipboard.writeText(from.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(from);
    button.textContent = "Press Ctrl+C";
  }
  setTimeout(() => { button.textContent = was; }, 1500);
});
document.documentElement.classList.add("script");

// A form is sent once, however often somebody clicks: a second time would make a second thing,
// and the answer to the first, such as a new secret, would never be seen.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.getAttribute("method") !== "post" || form.matches("[hx-post]")) return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
  setTimeout(() => { delete form.dataset.sent; }, 10000);
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("[data-sent]")) delete form.dataset.sent;
});

// Keys: g and a letter go to a page, j and k to the next and the last row, / to the filters.
const pages = { o: "/", d: "/deliveries", r: "/runs", w: "/webhooks", a: "/automations", f: "/definition" };
let going = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable], .palette")) return;
  const key = event.key;
  if (event.timeStamp - going < 1000 && pages[key]) {
    const link = [...document.querySelectorAll(".nav a")].find((a) => new URL(a.href).pathname.endsWith(pages[key]));
    if (link) location.assign(link.href);
    going = 0;
    return;
  }
  going = key === "g" ? event.timeStamp : 0;
  if (key === "/") {
    const first = document.querySelector(".filters input, .filters select");
    if (first) { event.preventDefault(); first.focus(); }
  }
  if (key === "j" || key === "k") {
    const rows = [...document.querySelectorAll(".t tbody a[href]")].filter((a, i, all) => i === all.findIndex((b) => b.closest("tr") === a.closest("tr")));
    const at = rows.findIndex((a) => a.closest("tr").contains(document.activeElement));
    const next = rows[Math.min(Math.max(at + (key === "j" ? 1 : -1), 0), rows.length - 1)];
    if (next) { event.preventDefault(); next.focus(); }
  }
});

// Search: Ctrl-K opens it over the page. Arrows go through what is found, letters go on with the
// text, and Enter in the field follows the first link. The browser closes it with Escape.
const field = document.getElementById("search");
function search() {
  const palette = document.getElementById("palette");
  if (palette && !palette.open) palette.showModal();
  field.select();
  if (palette) field.dispatchEvent(new Event("ask"));
}
// Ask again when htmx has begun, which is after this script: somebody may have typed before that.
field?.addEventListener("htmx:after:init", () => {
  if (document.getElementById("palette")?.open) field.dispatchEvent(new Event("ask"));
});
document.addEventListener("click", (event) => {
  if (event.target.id === "palette") event.target.close(); // beside it
  if (!field || event.ctrlKey || event.metaKey || event.shiftKey || !event.target.closest("[data-search]")) return;
  event.preventDefault();
  search();
});
document.addEventListener("keydown", (event) => {
  if (!field || event.altKey || event.isComposing) return;
  if ((event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    search();
  }
  const palette = event.target.closest(".palette");
  if (!palette || event.ctrlKey || event.metaKey) return;
  const found = document.getElementById("found"), stops = [field, ...found.querySelectorAll("a")];
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    stops[Math.min(Math.max(stops.indexOf(event.target) + step, 0), stops.length - 1)].focus();
  } else if (event.key === "Enter" && event.target === field && stops[1] && found.firstElementChild.dataset.text === field.value.trim()) {
    event.preventDefault();
    stops[1].click();
  } else if (event.key.length === 1 && event.target.matches("a")) {
    field.focus();
  }
});

// Live: what is new is said, with a link that shows it; rows do not move under the reader.
const newsNames = { deliveries: ["delivery", "deliveries"], runs: ["run", "runs"] };
for (const kind of Object.keys(newsNames)) {
  document.addEventListener(kind, (event) => {
    const count = JSON.parse(event.detail.data).new;
    for (const news of document.querySelectorAll(`[data-news="${kind}"]`)) {
      news.querySelector("b").textContent = `${count.toLocaleString("en")} new ${newsNames[kind][count === 1 ? 0 : 1]}`;
      news.hidden = count === 0;
    }
  });
}
// A live page whose stream does not open, or breaks, says so until it is open.
for (const stream of document.querySelectorAll("[data-stream]")) {
  const still = document.querySelector("[data-still]");
  let timer = 0;
  const wait = () => { timer ||= setTimeout(() => { still.hidden = !stream.isConnected; }, 5000); };
  const stop = () => { clearTimeout(timer); timer = 0; still.hidden = true; };
  wait();
  stream.addEventListener("htmx:sse:after:connection", stop);
  stream.addEventListener("htmx:sse:error", wait);
  stream.addEventListener("htmx:sse:close", wait);
  document.addEventListener("ended", () => { stop(); stream.removeEventListener("htmx:sse:error", wait); stream.removeEventListener("htmx:sse:close", wait); });
}
document.addEventListener("ended", () => {
  for (const note of document.querySelectorAll("[data-ended]")) note.hidden = false;
});

// A time that goes on: how long something has been at work, by the server's clock.
const ahead = Date.now() - Date.parse(document.body.dataset.now);
setInterval(() => {
  for (const shown of document.querySelectorAll("[data-since]")) {
    const s = Math.max(0, Math.floor((Date.now() - ahead - Date.parse(shown.dataset.since)) / 1000));
    const text = s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
    if (shown.textContent !== text) shown.textContent = text;
  }
}, 1000);

// A page that answers a form once, such as with a new secret, takes the address of what it
// made: to load it again does not send the form again.
const made = document.querySelector("[data-address]");
if (made) history.replaceState(null, "", made.dataset.address);

// A live part of a page in which somebody has opened a question or types is left as it is: the
// next change fetches it. Forms that answer as one types are no such parts.
function inUse(event) {
  const part = event.target;
  if (part instanceof Element && !part.matches("form, form *") && part.querySelector("details.ask[open], input:focus, textarea:focus, select:focus")) event.preventDefault();
}
document.addEventListener("htmx:before:request", inUse);
document.addEventListener("htmx:before:swap", inUse);
