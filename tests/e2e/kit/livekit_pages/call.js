// The public LiveKit client without a framework, used as documented. The tests call `window.call`
// and read `window.state`, which is JSON. Times are seconds of the instrumented page's audio clock
// (page/instrument.js), without it those of the page.
(() => {
  const { Room, RoomEvent, Track } = window.LivekitClient;
  const room = new Room();
  const decoder = new TextDecoder();
  const state = {
    identity: null,
    connection: [],
    participants: [],
    attributes: [],
    agentStates: [],
    tracks: [],
    captions: [],
    transcriptions: [],
    chat: [],
    data: [],
    speakers: [],
    errors: [],
    frames: 0,
  };
  window.state = state;

  const clock = () => window.e2e?.context.currentTime ?? performance.now() / 1000;
  const note = (list, entry) => state[list].push({ t: clock(), ...entry });
  const noteAttributes = (attributes, participant) => {
    note("attributes", { identity: participant.identity, attributes: { ...attributes } });
    const agentState = attributes["lk.agent.state"];
    if (!agentState) return;
    note("agentStates", { identity: participant.identity, state: agentState });
    document.getElementById("state").textContent = agentState;
  };

  const noteParticipant = (participant) => {
    const { identity, name, isAgent, attributes } = participant;
    note("participants", { identity, name, isAgent, event: "joined" });
    noteAttributes(attributes, participant);
  };

  room
    .on(RoomEvent.ConnectionStateChanged, (value) => note("connection", { state: value }))
    .on(RoomEvent.Disconnected, (reason) => note("connection", { state: "ended", reason }))
    .on(RoomEvent.ParticipantConnected, noteParticipant)
    .on(RoomEvent.ParticipantDisconnected, ({ identity }) =>
      note("participants", { identity, event: "left" }),
    )
    .on(RoomEvent.ParticipantAttributesChanged, noteAttributes)
    .on(RoomEvent.ActiveSpeakersChanged, (speakers) =>
      note("speakers", { identities: speakers.map((speaker) => speaker.identity) }),
    )
    .on(RoomEvent.TranscriptionReceived, (segments, participant, publication) =>
      note("transcriptions", {
        identity: participant?.identity,
        track: publication?.trackSid,
        segments: segments.map(({ id, text, final }) => ({ id, text, final })),
      }),
    )
    .on(RoomEvent.DataReceived, (payload, participant, _kind, topic) => {
      const text = decoder.decode(payload);
      note("data", { sender: participant?.identity, topic, text });
      // The waits of the instrumented page know these messages.
      if (topic === "visavis" && window.e2e) {
        const { messages } = window.e2e;
        messages.push({ n: messages.length, t: clock(), ...JSON.parse(text) });
      }
    })
    .on(RoomEvent.TrackSubscribed, (track, _publication, participant) => {
      const { kind, source, sid } = track;
      note("tracks", { kind, source, sid, identity: participant.identity, event: "subscribed" });
      if (kind === Track.Kind.Video) track.attach(document.getElementById("video"));
      else document.body.append(track.attach());
    })
    .on(RoomEvent.TrackUnsubscribed, (track, _publication, participant) => {
      const { kind, source, sid } = track;
      note("tracks", { kind, source, sid, identity: participant.identity, event: "unsubscribed" });
      for (const element of track.detach()) if (element.id !== "video") element.remove();
    });

  room.registerTextStreamHandler("lk.transcription", async (reader, { identity }) => {
    const { id, attributes } = reader.info;
    const caption = { t: clock(), identity, id, attributes, text: "", chunks: [], closed: null };
    state.captions.push(caption);
    const line = document.createElement("li");
    // The caption of a segment replaces its last one.
    const segment = attributes["lk.segment_id"];
    document.querySelector(`#captions li[data-segment="${CSS.escape(segment)}"]`)?.remove();
    line.dataset.segment = segment;
    document.getElementById("captions").append(line);
    try {
      for await (const chunk of reader) {
        caption.text += chunk;
        caption.chunks.push({ t: clock(), text: chunk });
        line.textContent = `${identity}: ${caption.text}`;
      }
    } catch (error) {
      caption.error = String(error);
    }
    caption.attributes = { ...reader.info.attributes };
    caption.closed = clock();
  });
  room.registerTextStreamHandler("lk.chat", async (reader, { identity }) => {
    note("chat", { identity, text: await reader.readAll(), attributes: reader.info.attributes });
  });

  const countFrames = (video) => {
    const onFrame = (_now, { width, height }) => {
      state.frames += 1;
      state.picture = { width, height };
      video.requestVideoFrameCallback(onFrame);
    };
    video.requestVideoFrameCallback(onFrame);
  };
  countFrames(document.getElementById("video"));

  const agent = () => [...room.remoteParticipants.values()].find((one) => one.isAgent);
  window.call = {
    room,
    /** `microphone`: whether it is published. */
    async join(url, token, { microphone = true } = {}) {
      await room.connect(url, token);
      state.identity = room.localParticipant.identity;
      const known = new Set(state.participants.map((one) => one.identity));
      for (const participant of room.remoteParticipants.values())
        if (!known.has(participant.identity)) noteParticipant(participant);
      if (microphone) await room.localParticipant.setMicrophoneEnabled(true);
    },
    leave: () => room.disconnect(),
    chat: (text) => room.localParticipant.sendText(text, { topic: "lk.chat" }),
    /** The answer of the agent, or of the participant `to`. */
    rpc: (method, payload = "", to = agent().identity) =>
      room.localParticipant.performRpc({ destinationIdentity: to, method, payload }),
    /** The `inbound-rtp` statistics of the received tracks, by their kind. */
    async stats() {
      const found = {};
      for (const participant of room.remoteParticipants.values())
        for (const { track } of participant.trackPublications.values()) {
          const reports = (await track?.receiver?.getStats()) ?? new Map();
          for (const report of reports.values())
            if (report.type === "inbound-rtp") found[track.kind] = report;
        }
      return found;
    },
  };
})();
