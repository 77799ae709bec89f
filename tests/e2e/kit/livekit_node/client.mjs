// A participant with LiveKit's official client for Node. It prints what arrives, one JSON object a
// line with the field `event`, and appends the agent's sound to a file as 16-bit samples at 48 kHz.
// It reads what it does from stdin in the same form: `{"chat": TEXT}`. It leaves at the end of stdin.
//
//   node client.mjs FOLDER_OF_THE_PACKAGES URL TOKEN SOUND_FILE
import { appendFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [packages, url, token, soundFile] = process.argv.slice(2);
const { AudioStream, dispose, Room, RoomEvent, TrackKind } = createRequire(`${packages}/`)(
  "@livekit/rtc-node",
);

const print = (event, fields) => console.log(JSON.stringify({ event, ...fields }));
const room = new Room();

const printParticipant = ({ identity, kind, attributes }) =>
  print("participant", { identity, kind, attributes });
room.on(RoomEvent.ParticipantConnected, printParticipant);
room.on(RoomEvent.ParticipantAttributesChanged, (attributes, { identity }) =>
  print("attributes", { identity, attributes }),
);
room.on(RoomEvent.Disconnected, (reason) => print("disconnected", { reason }));
room.on(RoomEvent.TrackSubscribed, async (track, publication, { identity }) => {
  print("track", { identity, name: publication.name, kind: track.kind });
  if (track.kind !== TrackKind.KIND_AUDIO) return;
  for await (const { data } of new AudioStream(track, 48_000, 1)) {
    appendFileSync(soundFile, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }
});
for (const topic of ["lk.transcription", "lk.chat"]) {
  room.registerTextStreamHandler(topic, async (reader, { identity }) => {
    const text = await reader.readAll();
    print("text", { topic, identity, text, attributes: reader.info.attributes });
  });
}

await room.connect(url, token, { autoSubscribe: true, dynacast: false });
print("connected", { identity: room.localParticipant.identity });
for (const participant of room.remoteParticipants.values()) printParticipant(participant);
for await (const line of createInterface({ input: process.stdin })) {
  await room.localParticipant.sendText(JSON.parse(line).chat, { topic: "lk.chat" });
}
await room.disconnect();
await dispose();
