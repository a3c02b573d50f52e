(() => {
  "use strict";
  const views = new Map();
  const options = {
    mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false,
    tooltip: { disableDefaultStyle: true, theme: "report", offsetX: 14, offsetY: 14 },
  };

  async function draw(place) {
    try {
      const spec = JSON.parse(document.getElementById(`spec-${place.id}`).textContent);
      const drawn = await vegaEmbed(place, spec, options);
      views.set(place.id, drawn.view);
      place.dataset.drawn = "yes";
    } catch (error) {
      const note = document.createElement("p");
      note.textContent = `This plot could not be drawn (${error.message}); its figures are in the tables.`;
      place.replaceChildren(note);
      console.error(error);
    }
  }

  // One family of a plot stands out; pressed again, all do.
  function single(button) {
    const legend = button.closest(".legend");
    const on = button.getAttribute("aria-pressed") !== "true";
    for (const other of legend.querySelectorAll("button")) other.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", String(on));
    const view = views.get(legend.dataset.plot);
    if (view) view.signal("family", on ? button.dataset.family : null).runAsync();
  }

  function compare(one, other) {
    const numbers = [Number(one), Number(other)];
    return numbers.some(Number.isNaN) ? one.localeCompare(other) : numbers[0] - numbers[1];
  }

  // Figures largest first, words from A; pressed again the other way round. What is unknown stays at the end.
  function sort(button) {
    const header = button.closest("th");
    const table = header.closest("table");
    const at = header.cellIndex;
    const value = (row) => row.cells[at].dataset.v;
    const words = [...table.tBodies[0].rows].some((row) => Number.isNaN(Number(value(row) ?? 0)));
    const before = header.getAttribute("aria-sort");
    const down = before ? before === "ascending" : !words;
    for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [one, other] = [value(a), value(b)];
      if (one === undefined || other === undefined) return (one === undefined) - (other === undefined);
      return down ? compare(other, one) : compare(one, other);
    });
    table.tBodies[0].append(...rows);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.closest(".legend")) single(button);
    else if (button.closest("thead")) sort(button);
  });

  Promise.all([...document.querySelectorAll(".plot")].map(draw)).then(() => {
    document.documentElement.dataset.ready = "yes";
  });
})();
