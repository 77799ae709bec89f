// Files of the browser.

/** A file as a data URI, for showing and sending. */
export const dataOf = (file) => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(file);
});
