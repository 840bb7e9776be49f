// Decisions: made one by one or many at once, undone in the same steps, kept in this browser, exported.
const key = "sgoif:" + data.id;
const decisions = new Map();  // path -> { decision, label, how }
const history = [];  // steps of [card, decision before]

function load() {
  try {
    const known = new Set(data.items.map((item) => item.path));
    for (const [path, d] of Object.entries(JSON.parse(localStorage.getItem(key) || "{}")))
      if (known.has(path)) decisions.set(path, d);
  } catch { say("This browser keeps no local storage: export before you close the page."); }
}
function store() {
  try { localStorage.setItem(key, JSON.stringify(Object.fromEntries(decisions))); }
  catch { say("This browser keeps no local storage: export before you close the page."); }
}
function take(steps) {  // steps: [card, decision]; one press of Undo takes all of them back
  history.push(steps.map(([found]) => [found, decisions.get(found.item.path)]));
  for (const [found, entry] of steps) {
    decisions.delete(found.item.path);  // so that the last decision is the last of the map
    decisions.set(found.item.path, entry);
  }
  store();
}
function decide(found, decision) {
  const { item, choice, node } = found;
  const entry = { decision, label: data.classes[item.given], how: "seen" };
  if (decision === "relabel") {
    const c = classNamed(choice.value);
    if (c < 0) { say(`No class ${JSON.stringify(choice.value)}: choose one of the list.`); choice.focus(); return false; }
    if (c === item.given) { say("That is the given label: choose another, or keep it."); choice.focus(); return false; }
    entry.label = data.classes[c];
  }
  const follow = neighbour(found, 1);
  take([[found, entry]]);
  say(`${item.path}: ${decision}${decision === "relabel" ? " as " + entry.label : ""}`);
  refresh();
  if (!zoomed) follow ? focusCard(follow) : node.hidden ? $("undo").focus() : focusCard(found);
  return true;
}
function undo() {
  if (!history.length) return;
  const steps = history.pop();
  for (const [{ item }, before] of steps) before ? decisions.set(item.path, before) : decisions.delete(item.path);
  store();
  say(steps.length === 1 ? `${steps[0][0].item.path}: undone` : `${steps.length} decisions undone`);
  refresh();
  const found = steps[0][0];
  if (zoomed) enlarge(found);
  else if (!found.node.hidden) focusCard(found);
}

const decided = () => data.items.filter((item) => decisions.has(item.path)).map((item) => {
  const { decision, label, how } = decisions.get(item.path);
  return { path: item.path, decision, given_label: data.classes[item.given], label, how: how ?? "seen" };
});
const quoted = (x) => /[",\r\n]|^\s|\s$/.test(x) ? '"' + x.replaceAll('"', '""') + '"' : x;
function asCSV() {
  const names = ["path", "decision", "given_label", "label", "how"];
  return [names, ...decided().map((d) => names.map((n) => quoted(d[n])))].map((r) => r.join(",") + "\n").join("");
}
const asJSON = () => JSON.stringify({ scan: data.id, decisions: decided() }, null, 1) + "\n";
function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
  say(`${decisions.size} decisions exported to ${name}`);
}
$("undo").addEventListener("click", undo);
$("csv").addEventListener("click", () => download("decisions.csv", asCSV(), "text/csv"));
$("json").addEventListener("click", () => download("decisions.json", asJSON(), "application/json"));
