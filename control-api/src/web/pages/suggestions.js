// Questions that the page suggests. A click sends one as text, for visitors who do not know what to
// ask, or who cannot speak.

/** Shows the questions as buttons. Each disappears once it is sent. */
export class Suggestions {
  #element;
  #onChosen;

  /**
   * @param {HTMLElement} element the group of buttons
   * @param {(question: string) => boolean} onChosen sends a question; returns whether it was sent.
   */
  constructor(element, onChosen) {
    this.#element = element;
    this.#onChosen = onChosen;
  }

  /** @param {unknown} questions from the server */
  show(questions) {
    const texts = Array.isArray(questions) ? questions.filter((q) => typeof q === "string") : [];
    this.#element.replaceChildren(...texts.map((text) => this.#button(text)));
    this.#element.hidden = texts.length === 0;
  }

  #button(text) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", () => {
      if (this.#onChosen(text)) this.#remove(button);
    });
    return button;
  }

  /** Removes a button. The focus moves to a neighbor, so that keyboard users keep their place. */
  #remove(button) {
    const neighbor = button.nextElementSibling ?? button.previousElementSibling;
    const hadFocus = document.activeElement === button;
    button.remove();
    this.#element.hidden = this.#element.childElementCount === 0;
    if (hadFocus) (neighbor ?? document.getElementById("text"))?.focus();
  }
}
