-- The LiveKit rooms that were served, by LiveKit's id of the room.
CREATE TABLE livekit_room (
    sid TEXT PRIMARY KEY,
    conversation TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX livekit_room_conversation ON livekit_room (conversation);
