// The page: sorting, filters, keys, theme.
const SORTS = {
  wrong: ["how probably the label is wrong", (a, b) => b.wrong - a.wrong || a.rank - b.rank],
  confusion: ["given → suggested label, then probability", (a, b) => a.given - b.given || a.other - b.other || b.wrong - a.wrong || a.rank - b.rank],
  path: ["path", (a, b) => a.path < b.path ? -1 : a.path > b.path ? 1 : 0],
};

function sortCards() {
  const places = placesInSection(), place = (item) => places.get(item) ?? Infinity;
  const compare = section === LABELS ? SORTS[$("sort").value][1] : (a, b) => (place(a) > place(b)) - (place(a) < place(b));
  cards.sort((a, b) => compare(a.item, b.item));
  $("cards").replaceChildren(...(section === LABELS ? cards.map((c) => c.node) : headings(cards)), $("nothing"));
}
function refresh() {
  const here = cards.filter((c) => inSection(c.item));
  const text = $("search").value.trim().toLowerCase(), given = $("given").value, other = $("other").value;
  const status = $("status").value, flagged = $("flagged").checked;
  let shown = 0;
  for (const { item, node, choice } of cards) {
    const d = decisions.get(item.path);
    const words = [item.path, ...[item.given, item.other].flatMap((c) => [data.classes[c], data.names[c]])].join(" ").toLowerCase();
    const matches = words.includes(text) && (given === "" || item.given === +given) && (other === "" || item.other === +other)
      && (!flagged || item.flagged) && (status === "" || (status === "open" ? !d : d?.decision === status));
    node.hidden = !(inSection(item) && (section !== LABELS || matches));  // filters belong to the first section
    shown += !node.hidden;
    node.dataset.decision = d?.decision ?? "";
    for (const name of ["keep", "relabel", "remove"]) node.querySelector("." + name).setAttribute("aria-pressed", d?.decision === name);
    if (d?.decision === "relabel") choice.value = data.names[data.classes.indexOf(d.label)];
  }
  $("nothing").hidden = shown > 0;
  const decidedHere = here.filter((c) => decisions.has(c.item.path)).length;
  $("bar").value = decidedHere; $("bar").max = here.length;
  $("count").textContent = `${decidedHere} of ${here.length} decided, ${shown} shown`;
  $("left").textContent = reviewProgress();
  $("left").hidden = !$("left").textContent;
  $("sorted").textContent = `(sorted by ${SORTS[$("sort").value][0]})`;
  $("undo").disabled = !history.length;
  listGroups();
  markZoomed();
}

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || $("keys").open || $("zoom").open) return;
  const typing = e.target.matches("input:not([type=checkbox]), select, textarea");
  if (typing) {
    if (e.key === "Escape" && e.target.closest("#tools")) { const first = neighbour(null, 1); if (first) focusCard(first); }
    return;
  }
  const at = current(), first = neighbour(null, 1);
  const move = (by, times = 1) => {
    let to = at;
    if (!to) { if (first) focusCard(first); return; }
    for (; times > 0; times--) to = neighbour(to, by) ?? to;
    focusCard(to);
  };
  const acts = {
    ArrowRight: () => move(1), ArrowLeft: () => move(-1), ArrowDown: () => move(1, columns()), ArrowUp: () => move(-1, columns()),
    k: () => decide(at, "keep"), r: () => decide(at, "relabel"), x: () => decide(at, "remove"), z: () => enlarge(at),
    l: () => { at.choice.focus(); at.choice.select(); },
    u: undo, "/": () => { if (section !== LABELS) openSection(LABELS); $("options").open = true; $("search").focus(); }, "?": () => $("keys").showModal(),
  };
  if (e.key === "Enter" && e.target.matches("article")) acts.Enter = acts.z;
  const pressed = e.key.length === 1 ? e.key.toLowerCase() : e.key, act = acts[pressed];
  if (!act) return;
  e.preventDefault();
  if ("krxlz".includes(pressed) && !at) { if (first) focusCard(first); return; }
  act();
});

document.title = `Suspicious labels: ${data.source}`;
$("headline").textContent = data.summary;
$("source").textContent = `The ${data.items.filter((item) => item.suspicious).length} most suspicious labels of ${data.source}`;
const found = data.class_issues.map((f) => f.kind === "small"
  ? `${f.given} has ${f.examples} examples: too few to judge its labels.`
  : `${percent(f.share)} of ${f.given} probably belong to ${f.other}: merge the two classes, or rename one?`);
$("found").append(...found.map((textContent) => make("li", { textContent })));
$("found").hidden = !found.length;
const option = (value, text) => make("option", { value, textContent: text });
const used = (name) => [...new Set(data.items.map((i) => i[name]))].sort((a, b) => a - b);
$("sort").append(...Object.entries(SORTS).map(([name, [text]]) => option(name, text)));
$("given").append(option("", "any given label"), ...used("given").map((c) => option(c, "given: " + data.names[c])));
$("other").append(option("", "any suggestion"), ...used("other").map((c) => option(c, "suggested: " + data.names[c])));
$("status").append(option("", "any decision"), option("open", "to review"), option("keep", "keep"), option("relabel", "relabel"), option("remove", "remove"));
$("classes").append(...data.names.map((c) => option(c, "")));
$("cards").append(make("p", { id: "nothing", className: "empty", textContent: "Nothing matches these filters." }));
cards = data.items.map(card);
makeSections();
$("sort").addEventListener("input", () => { sortCards(); refresh(); });
for (const id of ["search", "given", "other", "status", "flagged"]) $(id).addEventListener("input", refresh);
$("help").addEventListener("click", () => $("keys").showModal());
const root = document.documentElement;
const setTheme = (t) => { root.dataset.theme = t; try { localStorage.setItem("sgoif:theme", t); } catch { /* not kept */ } };
let theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
try { theme = localStorage.getItem("sgoif:theme") || theme; } catch { /* the system's */ }
root.dataset.theme = theme;
$("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
load();
openSection(LABELS);
