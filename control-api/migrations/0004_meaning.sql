-- What a document's chunks mean: base64 of their embeddings, each component one byte, and the model that told them. Empty: it told none.
ALTER TABLE kb_document ADD COLUMN directions TEXT;
ALTER TABLE kb_document ADD COLUMN directions_of TEXT;
