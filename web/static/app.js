// Everything is told by the API. Text from outside goes into the page as text, never as markup.

const $ = (id) => document.getElementById(id);
const shown = 200; // groups on one page; the filter finds the others
const every = 2000;

let groups = [];
let chosen = "";
let source = null;

function el(tag, props = {}, ...children) {
  const e = Object.assign(document.createElement(tag), props);
  e.append(...children);
  return e;
}

async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const body = await answer.json();
  if (!answer.ok) throw new Error(`${body.error}: ${body.message}`);
  return body;
}

const of = (group, what) => `/v1/groups/${encodeURIComponent(group)}/${what}`;
const clock = (ms) => (ms ? new Date(ms).toLocaleTimeString() : "");
const span = (ms) => (ms < 1000 ? `${ms} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${(ms / 60000).toFixed(1)} min`);

function say(text, kind) {
  $("server").textContent = text;
  $("server").className = kind;
}

async function refreshServer() {
  const { guarantees } = await ask("/readyz");
  say(`ready, ${guarantees.store} store`, "good");
  $("caveats").replaceChildren(...guarantees.caveats.map((c) => el("li", { textContent: c })));
  $("caveats").hidden = guarantees.caveats.length === 0;
}

async function refreshGroups() {
  const all = (await ask("/v1/groups")).groups.map((g) => g.group_id);
  const wanted = $("filter").value.trim().toLowerCase();
  const byName = all.filter((g) => g.toLowerCase().includes(wanted));
  const list = (byName.length > 0 ? byName : all).slice(0, shown);
  groups = await Promise.all(list.map(async (group) => ({ group, ...(await ask(of(group, "leader"))) })));
  const rows = groups.filter((g) => g.group.toLowerCase().includes(wanted) || (g.leader?.node_id ?? "").toLowerCase().includes(wanted));
  $("groups").tBodies[0].replaceChildren(...rows.map(groupRow));
  $("more").textContent = all.length > list.length
    ? `${all.length} groups, ${list.length} looked at: filter by group to see others`
    : all.length === 0 ? "No groups yet. The first campaign makes one." : "";
}

function groupRow({ group, leader, term }) {
  const row = el("tr", { className: group === chosen ? "chosen" : "" },
    el("td", {}, el("button", { type: "button", textContent: group })),
    el("td", leader ? { textContent: leader.node_id } : { textContent: "no leader", className: "bad" }),
    el("td", { className: "number", textContent: term }),
    el("td", {}, ...(leader ? leaseOf(leader) : [])));
  row.addEventListener("click", () => { location.hash = encodeURIComponent(group); });
  return row;
}

function leaseOf(leader) {
  const left = leader.lease_remaining_ms;
  const parts = [el("meter", { max: leader.lease_ttl_ms, value: left, title: `of ${span(leader.lease_ttl_ms)}` }), ` ${span(left)} `];
  if (leader.ending) {
    const to = leader.ending.successor ? ` to ${leader.ending.successor}` : "";
    parts.push(el("span", { className: "warn", title: leader.ending.note ?? "", textContent: (to ? "handing over" : "stepping down") + to }));
  }
  return parts;
}

async function refreshDetail() {
  if (!chosen) return;
  const group = chosen;
  const { members } = await ask(of(group, "members"));
  const { terms } = await ask(of(group, "history")).catch(() => ({ terms: [] }));
  if (group !== chosen) return;
  $("members").tBodies[0].replaceChildren(...members.map((m) => el("tr", {},
    el("td", { textContent: m.node_id, title: `instance ${m.instance_id}` }),
    el("td", { textContent: m.role, className: m.role === "leader" ? "good" : "" }),
    el("td", { textContent: clock(m.last_seen_ms) }),
    el("td", { className: "quiet", textContent: Object.entries(m.metadata ?? {}).map(([k, v]) => `${k}=${v}`).join(" ") }))));
  $("history").tBodies[0].replaceChildren(...terms.slice(-50).reverse().map((t) => el("tr", {},
    el("td", { className: "number", textContent: t.term }),
    el("td", { textContent: t.node_id, title: `instance ${t.instance_id}` }),
    el("td", { textContent: clock(t.elected_at_ms) }),
    el("td", { textContent: clock(t.ended_at_ms) }),
    el("td", t.reason ? { textContent: [t.reason, t.note].filter(Boolean).join(": ") } : { textContent: "leads", className: "good" }),
    el("td", { className: "number", textContent: span(t.leaderless_ms) }))));
}

// The chosen group is in the address, so that it can be shared and survives a reload.
function chooseByAddress() {
  let group = "";
  try {
    group = decodeURIComponent(location.hash.slice(1));
  } catch {
    return; // an address that was cut off names no group
  }
  if (group && group !== chosen) choose(group);
}

function choose(group) {
  chosen = group;
  $("detail").hidden = false;
  $("detail-title").textContent = group;
  $("events").replaceChildren();
  source?.close();
  source = new EventSource(of(group, "watch"));
  $("live").textContent = "connecting…";
  source.onopen = () => { $("live").textContent = "live"; };
  source.onerror = () => { $("live").textContent = "reconnecting…"; };
  source.addEventListener("bye", () => { $("live").textContent = "the server is going, reconnecting…"; });
  source.onmessage = (m) => {
    showEvent(JSON.parse(m.data));
    refresh();
  };
  refresh();
}

function showEvent(e) {
  const what = e.leader_node_id
    ? el("span", { className: "good", textContent: `${e.leader_node_id} leads` })
    : el("span", { className: "bad", textContent: e.reason ? `no leader: ${e.previous_node_id} ${e.reason.toLowerCase().replace("_", " ")}` : "no leader yet" });
  const gap = e.gap ? " (changes before this one may be missing)" : "";
  $("events").prepend(el("li", {}, el("time", { textContent: `${clock(e.ts_ms)} ` }), `term ${e.term} `, what, gap));
  while ($("events").children.length > 100) $("events").lastChild.remove();
}

// One refresh at a time; what changes during one is shown by another right after it.
let refreshing = false;
let again = false;
async function refresh() {
  again = true;
  if (refreshing) return;
  refreshing = true;
  while (again) {
    again = false;
    try {
      await refreshServer();
      await refreshGroups();
      await refreshDetail();
    } catch (err) {
      say(`cannot tell: ${err.message}`, "bad");
    }
  }
  refreshing = false;
}

$("filter").addEventListener("input", refresh);
addEventListener("hashchange", chooseByAddress);
chooseByAddress();
setInterval(() => { if (!document.hidden) refresh(); }, every);
refresh();
