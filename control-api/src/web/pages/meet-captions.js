// The captions of the meeting page: the agent's words in portions that fit on the screen. No DOM
// here, so it can be tested without a browser.

/** Characters that fit into the two lines of the page. A wide one counts twice. */
export const PORTION_LENGTH = 76;

const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uff60]/;
const SENTENCE_END = /[.!?…。！？]["'”’»)]*$/;

/**
 * The last portion of a text. A portion is filled word by word before the next one begins, so the
 * words that are already on the screen stay where they are.
 */
export function lastPortion(text, limit = PORTION_LENGTH) {
  let portion = "";
  for (const word of text.split(/\s+/).flatMap((word) => cut(word, limit))) {
    const longer = portion ? `${portion} ${word}` : word;
    const sentenceEnds = SENTENCE_END.test(portion) && lengthOf(portion) > limit / 2;
    portion = sentenceEnds || lengthOf(longer) > limit ? word : longer;
  }
  return portion;
}

function lengthOf(text) {
  let length = 0;
  for (const character of text) length += WIDE.test(character) ? 2 : 1;
  return length;
}

/** A word in parts that fit: some scripts have no blanks. */
function cut(word, limit) {
  const parts = [];
  let part = "";
  for (const character of word) {
    if (lengthOf(part + character) > limit) {
      parts.push(part);
      part = "";
    }
    part += character;
  }
  return part ? [...parts, part] : parts;
}
