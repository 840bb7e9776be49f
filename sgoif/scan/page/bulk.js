// Confusions (given label -> suggested label), and accepting the suggestion of all examples of one above a probability.
const confusion = (item) => item.given + ">" + item.other;

function groups() {  // Map: confusion -> cards, the greatest first
  const found = new Map();
  for (const c of cards) if (c.item.suspicious) found.set(confusion(c.item), [...(found.get(confusion(c.item)) ?? []), c]);
  return new Map([...found].sort((a, b) => b[1].length - a[1].length || a[1][0].item.rank - b[1][0].item.rank));
}
function acceptable(members) {  // undecided, and as probably wrong as is asked for
  return members.filter((c) => c.item.wrong >= +$("limit").value && !decisions.has(c.item.path));
}
function acceptAll(members) {
  const chosen = acceptable(members), { given, other } = members[0].item;
  take(chosen.map((c) => [c, { decision: "relabel", label: data.classes[other], how: "bulk" }]));
  for (const c of chosen) c.choice.value = data.names[other];
  say(`${chosen.length} relabelled from ${data.names[given]} to ${data.names[other]} without a look at each; Undo takes them back`);
  refresh();
}
function showConfusion({ given, other }) {
  $("given").value = given;
  $("other").value = other;
  refresh();
}
function listGroups() {
  if (!$("bulk").open) return;
  $("limit_shown").textContent = percent(+$("limit").value);
  $("groups").replaceChildren(...[...groups().values()].map((members) => {
    const { given, other } = members[0].item, chosen = acceptable(members);
    const right = chosen.reduce((sum, c) => sum + 1 - c.item.wrong, 0);
    const accept = make("button", { type: "button", disabled: !chosen.length,
      textContent: chosen.length ? `Relabel ${chosen.length}` : "none above" });
    accept.addEventListener("click", () => acceptAll(members));
    const show = make("button", { type: "button", textContent: "Show" });
    show.addEventListener("click", () => showConfusion(members[0].item));
    const limit = percent(+$("limit").value), few = Math.round(right);
    const told = chosen.length ? `, ${chosen.length} above ${limit}${few ? ` (about ${few} of them right)` : ""}` : "";
    return make("li", {}, make("span", { className: "who" }, make("b", { className: "given", textContent: data.names[given] }), " → ",
      make("b", { className: "better", textContent: data.names[other] }), make("span", { className: "soft", textContent: `: ${members.length} shown${told}` })), show, accept);
  }));
}
$("bulk").addEventListener("toggle", listGroups);
$("limit").addEventListener("input", listGroups);
