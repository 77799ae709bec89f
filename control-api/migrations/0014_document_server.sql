-- Which server reads a document.
ALTER TABLE kb_document ADD COLUMN server TEXT NOT NULL DEFAULT '';
