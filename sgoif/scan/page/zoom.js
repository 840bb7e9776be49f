// One image large, between typical pictures of its given and of its suggested class; keys decide and go on.
let zoomed = null, times = 1;
const MOST_TIMES = 8;

function enlarge(found) {
  zoomed = found;
  const item = found.item, large = $("large");
  large.src = item.image ?? "data:,";
  large.className = item.tiny ? "tiny" : "";
  large.alt = item.path;
  setTimes(1);
  const link = item.file ? [make("p", {}, make("a", { href: item.file, target: "_blank", rel: "noreferrer", textContent: "open the file" }))] : [];
  const copy = copyOf(item);
  const twin = copy ? [make("p", { className: "soft", textContent: `its copy, called ${data.names[copy.given]}: ${copy.path}` }),
    make("div", { className: "typical" }, picture(copy.image, copy.tiny, "its copy"))] : [];
  $("beside").replaceChildren(claim(item), chance(item), ...twin,
    make("p", { className: "soft", textContent: `typical: ${data.names[item.given]} (given)` }), make("div", { className: "typical" }, ...typical(item.given, 3)),
    make("p", { className: "soft", textContent: `typical: ${data.names[item.other]}` }), make("div", { className: "typical" }, ...typical(item.other, 3)),
    make("p", { className: "path", textContent: `#${item.rank} ${item.path}` }), ...link);
  markZoomed();
  if (!$("zoom").open) $("zoom").showModal();
  $("stage").focus();
}
function markZoomed() {
  if (!zoomed) return;
  const made = decisions.get(zoomed.item.path)?.decision;
  for (const name of ["keep", "relabel", "remove"]) $("zoom").querySelector("." + name).setAttribute("aria-pressed", made === name);
  $("zoom").querySelector(".relabel").replaceChildren(`→ ${zoomed.choice.value} `, make("kbd", { textContent: "r" }));
  $("back").disabled = !neighbour(zoomed, -1);
  $("next").disabled = !neighbour(zoomed, 1);
}
function setTimes(wanted) {
  times = Math.min(Math.max(wanted, 1), MOST_TIMES);
  $("large").style.width = $("large").style.height = 100 * times + "%";
  $("smaller").disabled = times === 1;
  $("larger").disabled = times === MOST_TIMES;
}
function stepZoomed(by) {
  const other = neighbour(zoomed, by);
  if (other) enlarge(other);
}
function decideZoomed(decision) {
  const follow = neighbour(zoomed, 1);
  if (!decide(zoomed, decision)) return $("zoom").close();  // the label to choose is on the card
  follow ? enlarge(follow) : $("zoom").close();
}
$("zoom").addEventListener("close", () => {
  const last = zoomed;
  zoomed = null;
  if (last && !last.node.hidden && !last.node.contains(document.activeElement)) focusCard(last);
});
for (const name of ["keep", "relabel", "remove"]) $("zoom").querySelector("." + name).addEventListener("click", () => decideZoomed(name));
$("back").addEventListener("click", () => stepZoomed(-1));
$("next").addEventListener("click", () => stepZoomed(1));
$("smaller").addEventListener("click", () => setTimes(times / 2));
$("larger").addEventListener("click", () => setTimes(times * 2));
$("close").addEventListener("click", () => $("zoom").close());
$("zoom").addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  const acts = {
    ArrowRight: () => stepZoomed(1), ArrowLeft: () => stepZoomed(-1),
    k: () => decideZoomed("keep"), r: () => decideZoomed("relabel"), x: () => decideZoomed("remove"), u: undo,
    "+": () => setTimes(times * 2), "=": () => setTimes(times * 2), "-": () => setTimes(times / 2), z: () => $("zoom").close(),
  };
  if (times > 1 && e.key.startsWith("Arrow")) return;  // the keys move about in the picture
  const act = acts[e.key.length === 1 ? e.key.toLowerCase() : e.key];
  if (!act) return;
  e.preventDefault();
  act();
});
