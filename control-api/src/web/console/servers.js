// The servers that share the database: state, calls and load of each. The page refreshes itself.

import * as api from "./api.js";
import { h, pill, plural, timeElement } from "./dom.js";
import { card, emptyState, errorMessage, pageHeader, pollWhileVisible } from "./ui.js";

const PATH = "/v1/ext/servers";
const POLL_SECONDS = 5;
/** Shorter than the time between two requests, so that an old response replaces no newer one. */
const TIMEOUT_MS = 4000;
/** Ids start with the time of their creation. Those of servers installed together differ here. */
const SHORT_ID_LENGTH = 8;

/** State → label, tone, meaning. */
const STATES = {
  ready: ["Ready", "good", "It accepts calls."],
  full: ["Full", "warn", "It has no capacity for another call. Its calls continue."],
  draining: ["Draining", "warn", "It accepts no calls, and stops when its calls have ended."],
  unavailable: [
    "Unavailable",
    "bad",
    "It accepts no calls: it starts, or something that calls need does not work.",
  ],
  lost: [
    "Lost",
    "bad",
    "It did not renew its lease in time. Other servers take over what it left behind. " +
      "Its version, calls and load are those that it last reported.",
  ],
};
const stateOf = ({ state }) => STATES[state] ?? [state, "", ""];

/**
 * Units of a relative time, with their seconds, longest first.
 * @type {[Intl.RelativeTimeFormatUnit, number][]}
 */
const UNITS = [
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];
const relativeTime = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** An ISO time as `2 minutes ago`. The clock of the browser may be behind that of the database. */
function ageElement(iso) {
  const element = timeElement(iso);
  if (!iso) return element;
  const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(iso)) / 1000));
  const [unit, length] = UNITS.find(([, length]) => seconds >= length) ?? UNITS.at(-1);
  element.textContent = relativeTime.format(-Math.floor(seconds / length), unit);
  return element;
}

/** The end of an id. Screen readers get the whole id. */
const idElement = (id) =>
  h(
    "code",
    { title: id },
    h("span", { "aria-hidden": "true" }, `…${id.slice(-SHORT_ID_LENGTH)}`),
    h("span", { class: "visually-hidden" }, id),
  );

/**
 * The columns after the id. One without `isUsed` is always shown.
 * @type {{label: string, class?: string, cell: (server: any) => any,
 *   isUsed?: (server: any) => boolean}[]}
 */
const COLUMNS = [
  {
    label: "State",
    cell: (server) => {
      const [label, tone] = stateOf(server);
      return pill(label, tone);
    },
  },
  {
    label: "Region",
    cell: ({ region }) => region || h("span", { class: "soft" }, "–"),
    isUsed: ({ region }) => Boolean(region),
  },
  { label: "Version", cell: ({ version }) => version || h("span", { class: "soft" }, "–") },
  { label: "Calls", class: "number-cell", cell: ({ calls }) => String(calls) },
  { label: "Load", class: "number-cell", cell: ({ load }) => `${Math.round(load * 100)} %` },
  {
    label: "Renewed",
    cell: ({ renewed_at: renewedAt }) => ageElement(renewedAt),
    isUsed: ({ renewed_at: renewedAt }) => Boolean(renewedAt),
  },
];

function serverTable(servers) {
  if (!servers.length)
    return emptyState(
      "servers",
      "No servers are listed",
      "Only API keys of the first workspace see the servers.",
    );
  const columns = COLUMNS.filter(({ isUsed }) => !isUsed || servers.some(isUsed));
  return h(
    "div",
    { class: "card flush" },
    h(
      "table",
      { class: "servers" },
      h("caption", { class: "visually-hidden" }, "Servers"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ["Server", ...columns.map(({ label }) => label)].map((label) =>
            h("th", { scope: "col" }, label),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        servers.map((server) =>
          h(
            "tr",
            {},
            h(
              "th",
              { scope: "row" },
              idElement(server.id),
              server.is_self && h("span", { class: "soft" }, "This server"),
            ),
            columns.map(({ label, class: className, cell }) =>
              h("td", { "data-label": label, class: className }, cell(server)),
            ),
          ),
        ),
      ),
    ),
  );
}

/** `3 servers: 2 ready, 1 lost` */
function summary(servers) {
  const counts = Map.groupBy(servers, (server) => stateOf(server)[0].toLowerCase());
  const parts = [...counts].map(([label, { length }]) => `${length} ${label}`);
  return `${plural(servers.length, "server")}${parts.length ? `: ${parts.join(", ")}` : ""}`;
}

/**
 * Shows `next` in `container`. Cells that stay the same keep their elements, so that a selection
 * and the position of a screen reader survive.
 */
function update(container, next) {
  const [cells, nextCells] = [container, next].map((node) => [...node.querySelectorAll("th, td")]);
  const [rows, nextRows] = [container, next].map((node) => node.querySelectorAll("tr").length);
  if (!cells.length || cells.length !== nextCells.length || rows !== nextRows)
    container.replaceChildren(next);
  else
    for (const [i, cell] of cells.entries())
      if (!cell.isEqualNode(nextCells[i])) cell.replaceWith(nextCells[i]);
}

export async function serversPage({ signal }) {
  let servers = await api.listAll(PATH, signal);
  const status = h("p", { class: "soft", role: "status" });
  const problem = h("div", { hidden: true });
  const table = h("div");
  const ownDatabaseNote = h(
    "p",
    { class: "soft" },
    "This server has its own database. Several servers can share a PostgreSQL database (",
    h("code", {}, "server.database_url"),
    ").",
  );
  const render = () => {
    const text = summary(servers);
    // A text that is set again may be announced again.
    if (status.textContent !== text) status.textContent = text;
    update(table, serverTable(servers));
    ownDatabaseNote.hidden = servers.length !== 1 || Boolean(servers[0].renewed_at);
  };
  const showProblem = (error) => {
    const message = errorMessage(error);
    message.prepend("This list is not current. ");
    if (!problem.firstChild?.isEqualNode(message)) problem.replaceChildren(message);
    problem.hidden = false;
  };
  render();
  pollWhileVisible(POLL_SECONDS, signal, async () => {
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    try {
      servers = await api.listAll(PATH, AbortSignal.any([signal, timeout]));
      problem.hidden = true;
      problem.replaceChildren();
    } catch (error) {
      if (signal.aborted) return;
      showProblem(error);
    }
    // Also after a failure: the renewals are older now.
    render();
  });
  return [
    pageHeader(
      "Servers",
      "The servers that share the database. “This server” has sent the list. " +
        `The list refreshes every ${POLL_SECONDS} seconds.`,
    ),
    problem,
    status,
    table,
    ownDatabaseNote,
    card(
      "States",
      h(
        "dl",
        { class: "facts" },
        Object.values(STATES).map(([label, tone, meaning]) => [
          h("dt", {}, pill(label, tone)),
          h("dd", {}, meaning),
        ]),
      ),
    ),
  ];
}
