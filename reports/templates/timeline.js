// A timeline says what its shapes are when they are tapped or clicked, and to the arrow keys: left and right within a lane,
// up and down between lanes, Escape to end. Without this script a mouse still shows the titles.
(() => {
  const LANES = [".operations > g", ".acknowledgements > rect", ".calls > rect", ".writes > rect", ".flushes > rect", ".points > rect", ".marker"];
  document.querySelectorAll(".timeline").forEach((figure) => {
    const box = figure.querySelector(".scroll");
    const shape = (of) => of.matches("rect") ? of : of.querySelector("rect, path");
    const middle = (of) => { const b = shape(of).getBBox(); return b.x + b.width / 2; };
    let lanes = null;
    const known = () => lanes || (lanes = LANES.map((css) => [...figure.querySelectorAll(css)].sort((a, b) => middle(a) - middle(b))).filter((lane) => lane.length));
    const said = document.createElement("output");
    said.className = "said";
    const idle = "Tap or click a shape, or use the arrow keys here, to read what it is.";
    said.textContent = idle;
    figure.querySelector("figcaption").before(said);
    let chosen = null;
    const choose = (target) => {
      if (chosen) chosen.classList.remove("chosen");
      chosen = target;
      said.textContent = target ? target.querySelector(":scope > title").textContent : idle;
      if (!target) return;
      target.classList.add("chosen");
      const at = target.getBoundingClientRect(), frame = box.getBoundingClientRect();
      if (at.left < frame.left || at.right > frame.right) box.scrollLeft += at.left - frame.left - frame.width / 2;
    };
    box.addEventListener("click", (event) => {
      for (let of = event.target; of && of !== box; of = of.parentElement) {
        if (of.querySelector(":scope > title")) { choose(of); return; }
      }
      choose(null);
    });
    const step = (key) => {
      const all = known();
      const row = all.findIndex((lane) => lane.includes(chosen));
      if (row < 0) return all[0] && all[0][0];
      const lane = all[row], column = lane.indexOf(chosen);
      if (key === "ArrowRight") return lane[Math.min(column + 1, lane.length - 1)];
      if (key === "ArrowLeft") return lane[Math.max(column - 1, 0)];
      if (key === "Home") return lane[0];
      if (key === "End") return lane[lane.length - 1];
      const other = all[Math.min(Math.max(row + (key === "ArrowDown" ? 1 : -1), 0), all.length - 1)];
      if (other === lane) return chosen;
      const x = middle(chosen);
      return other.reduce((best, of) => Math.abs(middle(of) - x) < Math.abs(middle(best) - x) ? of : best);
    };
    box.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key === "Escape") { choose(null); return; }
      if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      const target = step(event.key);
      if (target) choose(target);
    });
  });
})();
