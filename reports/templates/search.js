// Filters the cases and findings of the page, by text and by words that the page itself has. Without it everything is shown.
(() => {
  const titled = document.querySelector(".titled");
  const cases = [...document.querySelectorAll("details.case")];
  if (!titled || cases.length < 2) return;
  const about = cases.map((box) => {
    const [mode, workload] = box.querySelector("h3").textContent.split("/");
    const findings = [...box.querySelectorAll(".finding")].map((card) => ({
      card, oracle: card.querySelector(".oracle")?.textContent ?? "", text: card.textContent.toLowerCase(),
    }));
    return { box, mode, workload, findings, text: box.textContent.toLowerCase() };
  });
  const unique = (words) => [...new Set(words.filter(Boolean))].sort();
  const bar = document.createElement("form");
  bar.className = "search";
  bar.setAttribute("role", "search");
  const text = document.createElement("input");
  text.type = "search";
  text.placeholder = "Search ( / )";
  text.setAttribute("aria-label", "Search cases and findings");
  const choice = (name, words) => {
    const made = document.createElement("select");
    made.setAttribute("aria-label", name);
    made.name = name;
    made.append(new Option(`any ${name}`, ""), ...words.map((word) => new Option(word, word)));
    return made;
  };
  const mode = choice("mode", unique(about.map((c) => c.mode)));
  const workload = choice("workload", unique(about.map((c) => c.workload)));
  const oracle = choice("oracle", unique(about.flatMap((c) => c.findings.map((f) => f.oracle))));
  const said = document.createElement("output");
  said.setAttribute("aria-live", "polite");
  bar.append(text, mode, oracle, workload, said);
  titled.after(bar);
  const fields = { text, mode, oracle, workload };

  const filter = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const has = (body) => words.every((word) => body.includes(word));
    const narrow = words.length > 0 || oracle.value !== "";
    let shown = 0;
    for (const c of about) {
      const right = (!mode.value || c.mode === mode.value) && (!workload.value || c.workload === workload.value);
      let some = false;
      const head = has(`${c.mode}/${c.workload}`.toLowerCase());
      for (const f of c.findings) {
        const kept = (!oracle.value || f.oracle === oracle.value) && (head || has(f.text));
        f.card.hidden = !kept;
        some ||= kept;
      }
      const kept = right && (narrow ? some || (!oracle.value && has(c.text)) : true);
      if (kept && narrow && !some) c.findings.forEach((f) => { f.card.hidden = false; });
      c.box.hidden = !kept;
      shown += kept ? 1 : 0;
    }
    document.querySelectorAll("details.group").forEach((group) => {
      const left = group.querySelectorAll("details.case:not([hidden])").length;
      group.hidden = !left;
      if (narrow && left) group.open = true;
    });
    said.textContent = shown === about.length ? "" : shown ? `${shown} of ${about.length} cases` : "Nothing matches; Escape shows all";
    return shown;
  };
  const remember = () => {
    const pairs = Object.entries(fields).filter(([, field]) => field.value).map(([name, field]) => [name, field.value]);
    if (pairs.length) location.replace(`#?${new URLSearchParams(pairs)}`);
    else if (location.hash.startsWith("#?")) location.replace("#");
  };
  const recall = () => {
    if (!location.hash.startsWith("#?")) return;
    const given = new URLSearchParams(location.hash.slice(2));
    for (const [name, field] of Object.entries(fields)) field.value = given.get(name) ?? "";
    filter();
  };
  bar.addEventListener("input", () => { filter(); remember(); });
  bar.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target && target.closest("[hidden]")) {
      Object.values(fields).forEach((field) => { field.value = ""; });
      filter();
      target.scrollIntoView();
    } else recall();
  });
  recall();

  const step = (by) => {
    const cards = about.filter((c) => !c.box.hidden).flatMap((c) => c.findings.filter((f) => !f.card.hidden).map((f) => f.card));
    if (!cards.length) return;
    const at = cards.indexOf(document.activeElement.closest?.(".finding"));
    const next = cards[at < 0 ? (by > 0 ? 0 : cards.length - 1) : (at + by + cards.length) % cards.length];
    for (let d = next; d; d = d.parentElement.closest("details")) d.open = true;
    (next.querySelector("summary") ?? next).focus();
    next.scrollIntoView({ block: "nearest" });
  };
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !typing) { event.preventDefault(); text.focus(); }
    else if (event.key === "Escape") { Object.values(fields).forEach((field) => { field.value = ""; }); filter(); remember(); if (typing) event.target.blur(); }
    else if (!typing && event.key === "j") step(1);
    else if (!typing && event.key === "k") step(-1);
  });
})();
