// The page is complete without this script, which adds copy buttons and opens the targets of links. On paper, a case is a line unless all were opened, or it is the only one; then nothing is folded, and neither is it without this script.
(() => {
  document.body.classList.add("script");
  const folds = [...document.querySelectorAll("details.case, details.group")];
  const reveal = (target) => {
    for (let d = target && target.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
  };
  const openTarget = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.closest("details")) { reveal(target); target.scrollIntoView(); }
  };
  addEventListener("hashchange", openTarget);
  openTarget();
  document.querySelectorAll('a[href^="#case-"], a[href^="#finding-"]').forEach((link) => link.addEventListener("click", () => {
    reveal(document.getElementById(decodeURIComponent(link.hash.slice(1))));
  }));

  const sideways = () => document.querySelectorAll(".scroll").forEach((box) => {
    box.classList.toggle("sideways", box.scrollWidth > box.clientWidth + 1);
  });
  addEventListener("resize", sideways);
  sideways();

  const button = (text, press) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => press(made));
    return made;
  };
  const copy = async (code) => {
    const text = code.textContent.replace(/^(reproduce|why|fewer operations|run it|continue with): /, "");
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      getSelection().selectAllChildren(code);
      return document.execCommand("copy");
    }
  };
  document.querySelectorAll(".command").forEach((box) => {
    const code = box.querySelector("code");
    const made = button("Copy", async (self) => {
      self.textContent = (await copy(code)) ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { self.textContent = "Copy"; }, 1600);
    });
    made.setAttribute("aria-live", "polite");
    box.append(made);
  });
  const titled = document.querySelector(".titled");
  if (titled && folds.length > 1) {
    titled.append(button("Open all", (self) => {
      const open = folds.some((d) => !d.open);
      folds.forEach((d) => { d.open = open; });
      document.body.classList.toggle("opened", open);
      self.textContent = open ? "Close all" : "Open all";
    }));
  }
  else document.body.classList.add("opened");
  addEventListener("beforeprint", () => {
    document.querySelectorAll("body.opened details").forEach((d) => { d.open = true; });
  });
})();
