// The state of the call page that survives a reload, in `sessionStorage`.

/**
 * What a reload needs: the conversation and its captions. The token of a join page is in the URL,
 * so only that of an embed page is stored.
 */
export const createSavedState = (key) => ({
  load() {
    try {
      return JSON.parse(sessionStorage.getItem(key)) ?? {};
    } catch {
      return {};
    }
  },
  save(changes) {
    try {
      sessionStorage.setItem(key, JSON.stringify({ ...this.load(), ...changes }));
    } catch {
      /* a frame without storage: a reload starts from the beginning */
    }
  },
  clear() {
    try {
      sessionStorage.removeItem(key);
    } catch {
      /* as above */
    }
  },
});
