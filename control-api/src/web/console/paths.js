// Access to nested data by the paths that the server uses in its errors, such as
// `avatars[0].config.llm.url`.

const parsePath = (path) =>
  path
    .split(/[.[\]]+/)
    .filter(Boolean)
    .map((step) => (/^\d+$/.test(step) ? Number(step) : step));

/** The value at a path, or undefined. */
export const getPath = (data, path) => parsePath(path).reduce((value, step) => value?.[step], data);

/** Sets the value at a path. Creates missing objects and arrays on the way. */
export function setPath(data, path, value) {
  const keys = parsePath(path);
  const lastKey = keys.pop();
  let target = data;
  keys.forEach((key, i) => {
    if (typeof target[key] !== "object" || target[key] === null)
      target[key] = typeof (keys[i + 1] ?? lastKey) === "number" ? [] : {};
    target = target[key];
  });
  target[lastKey] = value;
}

/**
 * The path of `paths` to which a rejected field belongs: the same path, else the longest one that
 * contains it, else the first one inside it.
 * @returns {string | null}
 */
export function owningPath(paths, rejectedPath) {
  // `config.` may be missing in the path to an avatar's models.
  const normalize = (path) => path.replace(/\]\.config\./, "].");
  const wanted = normalize(rejectedPath);
  const contains = (parent, child) =>
    child === parent || child.startsWith(`${parent}.`) || child.startsWith(`${parent}[`);
  return (
    paths.find((path) => normalize(path) === wanted) ??
    paths
      .filter((path) => contains(normalize(path), wanted))
      .sort((a, b) => b.length - a.length)[0] ??
    paths.find((path) => contains(wanted, normalize(path))) ??
    null
  );
}
