// Sections: suspicious labels, copies under several labels, outliers. An example may be in several of them.
const LABELS = { name: "labels", title: "Suspicious labels", told: "", groups: [] };
const sections = [LABELS, ...data.sections];
let section = LABELS;
const groupsOf = new Map();  // section -> Map of item -> its group
for (const s of data.sections) groupsOf.set(s, new Map(s.groups.flatMap((g) => g.items.map((n) => [data.items[n], g]))));

const inSection = (item) => section === LABELS ? item.suspicious : groupsOf.get(section).has(item);
function placesInSection() {  // Map: item -> place
  return new Map(section.groups.flatMap((g) => g.items).map((n, place) => [data.items[n], place]));
}
function copyOf(item) {  // an example of the same group with another label, or null
  const group = section.name === "copies" && groupsOf.get(section).get(item);
  return group ? data.items[group.items.find((n) => data.items[n].given !== item.given)] ?? null : null;
}
function headings(shown) {  // the nodes of the section's cards, each group below a line that tells what joins it
  return section.groups.flatMap((g) => {
    const nodes = shown.filter((c) => groupsOf.get(section).get(c.item) === g).map((c) => c.node);
    return [make("h2", { className: "group", textContent: g.told }), ...nodes];
  });
}
function openSection(wanted) {
  section = wanted;
  for (const [n, b] of [...$("sections").children].entries()) b.setAttribute("aria-pressed", sections[n] === section);
  document.body.dataset.section = section.name;
  $("section_told").textContent = section.told;
  $("section_told").hidden = !section.told;
  $("options").hidden = $("bulk").hidden = section !== LABELS;
  for (const c of cards) tellBeside(c);
  sortCards();
  refresh();
}
function makeSections() {
  const count = (s) => data.items.filter((item) => s === LABELS ? item.suspicious : groupsOf.get(s).has(item)).length;
  $("sections").append(...sections.map((s) => {
    const b = make("button", { type: "button", textContent: `${s.title} (${s.name === "copies" ? s.groups.length : count(s)})` });
    b.addEventListener("click", () => openSection(s));
    return b;
  }));
  $("sections").hidden = sections.length === 1;
}
