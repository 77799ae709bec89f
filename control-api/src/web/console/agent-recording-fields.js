// The form fields of the recording of an agent's calls.

const PATH = "config.recording";
const isRecorded = (get) => get("record");

/**
 * The section of an agent or a template. `problem`: why this server cannot record calls, as one
 * sentence; empty if it can.
 * @param {string} [problem]
 */
export function recordingSection(problem = "") {
  return {
    id: "recording",
    title: "Recording",
    summary: "Files of the calls, notice to callers",
    open: false,
    description: "In many countries, callers must know or agree before a call is recorded.",
    fields: [
      { path: "record", label: "Record its calls", kind: "check", hint: problem || undefined },
      {
        path: `${PATH}.notice`,
        label: "Show callers that the call is recorded",
        kind: "check",
        initial: true,
        hint: "On the join page, on embedded pages, and to other clients of the data channel.",
        visibleIf: isRecorded,
      },
      {
        path: `${PATH}.optional`,
        label: "Callers may turn the recording off",
        kind: "check",
        hint: "What was recorded until then is deleted.",
        visibleIf: isRecorded,
      },
      {
        path: `${PATH}.message`,
        label: "Spoken notice",
        emptyValue: null,
        class: "wide",
        placeholder: "This call is recorded.",
        hint: "Spoken after the welcome. Empty: none.",
        visibleIf: isRecorded,
      },
      {
        path: `${PATH}.channels`,
        label: "Sound",
        kind: "select",
        options: [
          ["mixed", "Both voices mixed"],
          ["split", "Caller left, agent right"],
        ],
        visibleIf: isRecorded,
      },
      {
        path: `${PATH}.format`,
        label: "Format of the file",
        kind: "select",
        options: [
          ["webm", "WebM"],
          ["mp4", "MP4 (needs ffmpeg on the server)"],
        ],
        visibleIf: isRecorded,
      },
    ],
  };
}
