// Fields of nested data by the paths that the server names in its refusals, such as `avatars[0].config.llm.url`.

const steps = (path) => path.split(/[.[\]]+/).filter(Boolean).map((step) => (/^\d+$/.test(step) ? Number(step) : step));

/** The value at a path; undefined where there is none. */
export const read = (data, path) => steps(path).reduce((value, step) => value?.[step], data);

/** Puts a value at a path, making what lies on the way. */
export function put(data, path, value) {
  const way = steps(path);
  const last = way.pop();
  let place = data;
  way.forEach((step, i) => {
    if (typeof place[step] !== "object" || place[step] === null) place[step] = typeof (way[i + 1] ?? last) === "number" ? [] : {};
    place = place[step];
  });
  place[last] = value;
}

/**
 * Which of `paths` a refused field belongs to: itself, or what holds it, or what stands in it.
 * @returns {string | null}
 */
export function owner(paths, refused) {
  // `config.` may be left out of the way to an avatar's models.
  const same = (path) => path.replace(/\]\.config\./, "].");
  const wanted = same(refused);
  const inside = (whole, part) => part === whole || part.startsWith(`${whole}.`) || part.startsWith(`${whole}[`);
  return paths.find((path) => same(path) === wanted)
    ?? paths.filter((path) => inside(same(path), wanted)).sort((a, b) => b.length - a.length)[0]
    ?? paths.find((path) => inside(wanted, same(path)))
    ?? null;
}
