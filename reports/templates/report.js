// The page reads the same without this: it adds copy buttons, opens what is linked to, and opens all for print.
(() => {
  const cases = [...document.querySelectorAll("details.case")];
  const openTarget = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const section = target && target.closest("details.case");
    if (section) { section.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", openTarget);
  openTarget();
  document.querySelectorAll(".matrix a").forEach((link) => link.addEventListener("click", () => {
    const section = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    if (section) section.open = true;
  }));

  const button = (text, press) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => press(made));
    return made;
  };
  const copy = async (code) => {
    const text = code.textContent.replace(/^reproduce: /, "");
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
  if (titled && cases.length > 1) {
    titled.append(button("Open all", (self) => {
      const open = cases.some((c) => !c.open);
      cases.forEach((c) => { c.open = open; });
      self.textContent = open ? "Close all" : "Open all";
    }));
  }
  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((d) => { d.open = true; });
  });
})();
