// The components that Airflow's interface imports. `Hindcast` shows the review pages in a frame: as an entry of the
// navigation, and as a tab of DAGs and DAG runs. `Hindcast card` is the card on the Home page.
const { createElement: h, useEffect, useRef, useState } = globalThis.React;
const { Link, useLocation } = globalThis.ReactRouterDOM;

const ROUTE = "/plugin/hindcast"; // jobs/review/links.py, FRAME
const PAGES = new URL("..", import.meta.url).pathname; // where the pages are mounted, such as /hindcast/
const ROOT = PAGES.replace(/\/hindcast\/$/, ""); // the path of Airflow, mostly empty

const isDark = () => document.documentElement.classList.contains("dark");

// The pages cannot see Airflow's switch for the theme, so the theme is in a cookie that only they get.
const tellTheme = (frame) => {
  const theme = isDark() ? "dark" : "light";
  document.cookie = `hindcast_theme=${theme}; path=${PAGES}; SameSite=Strict`;
  const page = frame?.contentDocument?.documentElement;
  if (page) page.dataset.theme = theme;
};

const useTheme = (frame) => {
  useEffect(() => {
    const watcher = new MutationObserver(() => tellTheme(frame.current));
    watcher.observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
    return () => watcher.disconnect();
  }, []);
};

// The page that the address bar names: what follows ROUTE, if that is a path of ours.
const pathOf = (address) => {
  const found = address.pathname.slice(address.pathname.indexOf(ROUTE) + ROUTE.length);
  return `${ROOT}${found}`.startsWith(PAGES) ? `${ROOT}${found}${address.search}` : PAGES;
};

// Keep the address bar on the page that the frame shows, so that it can be reloaded, sent and marked.
const mirror = (frame) => {
  const shown = frame.contentWindow?.location;
  if (!shown || shown.origin !== window.location.origin || !shown.pathname.startsWith(PAGES)) return;
  const path = shown.pathname.slice(ROOT.length) + shown.search;
  window.history.replaceState(window.history.state, "", `${ROOT}${ROUTE}${path}`);
  document.title = frame.contentDocument?.title || document.title;
};

const Frame = ({ path, onShow }) => {
  const frame = useRef(null);
  tellTheme(null); // before the frame asks for its first page
  useTheme(frame);
  return h("iframe", {
    ref: frame,
    src: path,
    title: "Hindcast",
    onLoad: () => {
      tellTheme(frame.current);
      onShow?.(frame.current);
    },
    style: { border: 0, display: "block", height: "100%", minHeight: "75vh", width: "100%", colorScheme: "normal" },
  });
};

const Entry = () => {
  const location = useLocation();
  const path = pathOf(window.location);
  // A click on the entry of the navigation starts again with the address that was clicked.
  return h(Frame, { key: location.key, path, onShow: mirror });
};

const query = (values) => new URLSearchParams(values).toString();

globalThis.Hindcast = ({ dagId, runId }) => {
  if (dagId && runId) return h(Frame, { path: `${PAGES}dag-run?${query({ dag_id: dagId, run_id: runId })}` });
  if (dagId) return h(Frame, { path: `${PAGES}dag?${query({ dag_id: dagId })}` });
  return h(Entry);
};

const POLL_MS = 60_000;

const useLines = () => {
  const [lines, set] = useState({ held: [], waits: [] });
  useEffect(() => {
    let isShown = true;
    const ask = () =>
      fetch(`${PAGES}held.json`, { credentials: "same-origin", headers: { accept: "application/json" } })
        .then((answer) => (answer.ok ? answer.json() : { held: [], waits: [] }))
        .then((found) => isShown && set(found))
        .catch(() => undefined);
    ask();
    const timer = setInterval(ask, POLL_MS);
    return () => {
      isShown = false;
      clearInterval(timer);
    };
  }, []);
  return lines;
};

globalThis["Hindcast card"] = () => {
  const { Badge, Box, Heading, HStack, Text, VStack } = globalThis.ChakraUI;
  const { held, waits } = useLines();
  if (!held.length && !waits.length) return null;
  const line = (colorPalette) => (one) =>
    h(
      HStack,
      { key: `${one.pipeline} ${one.badge}`, gap: 3, flexWrap: "wrap" },
      h(Badge, { colorPalette, variant: "solid" }, one.badge),
      h(Link, { to: `${ROUTE}${one.path}`, style: { fontWeight: 600, textDecoration: "underline" } }, one.title),
      h(Text, { color: "fg.muted", fontSize: "sm" }, one.why),
    );
  return h(
    Box,
    { borderRadius: 5, borderWidth: 1, p: 4, my: 2, "data-testid": "hindcast-held" },
    h(Heading, { size: "xs", color: "fg.muted", mb: 2 }, `Hindcast: waits for ${held.length ? "a decision" : "data"}`),
    h(VStack, { align: "start", gap: 2 }, ...held.map(line("red")), ...waits.map(line("gray"))),
  );
};
