-- Facts about runs and trials. Values are stored as `json`, not `jsonb`: it keeps the very bytes that were sent, and
-- it may hold \u0000, which agents print and jsonb refuses.

CREATE TABLE runs (
    uid        text PRIMARY KEY,
    record     json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE trials (
    uid        text PRIMARY KEY,
    run        text NOT NULL REFERENCES runs (uid),
    record     json NOT NULL,
    -- Which attempt and which sandbox are alive; both only grow.
    attempt    integer NOT NULL,
    sandbox    integer NOT NULL,
    -- `spec.retries` of the record: an errored trial that is sent back is settled anew.
    retries    integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX trials_of_run ON trials (run);

CREATE TABLE journal (
    sequence   bigint GENERATED ALWAYS AS IDENTITY,
    trial      text NOT NULL REFERENCES trials (uid),
    key        text NOT NULL,
    -- The attempt of the token that sent it.
    attempt    integer NOT NULL,
    kind       text NOT NULL,
    body       json NOT NULL,
    stored_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (trial, key)
);
CREATE INDEX journal_in_order ON journal (trial, sequence);

CREATE TABLE settlements (
    trial      text NOT NULL REFERENCES trials (uid),
    retries    integer NOT NULL,
    phase      text NOT NULL,
    settlement json NOT NULL,
    verdict    json,
    result     json,
    settled_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (trial, retries)
);

CREATE TABLE archives (
    digest     text PRIMARY KEY,
    bytes      bigint NOT NULL,
    stored_at  timestamptz NOT NULL DEFAULT now()
);

-- Which trials have proved that they hold an archive, by sending it; these alone may read it.
CREATE TABLE archive_owners (
    digest     text NOT NULL REFERENCES archives (digest),
    trial      text NOT NULL REFERENCES trials (uid),
    PRIMARY KEY (digest, trial)
);

CREATE TABLE packages (
    digest     text PRIMARY KEY,
    manifest   json NOT NULL,
    stored_at  timestamptz NOT NULL DEFAULT now()
);

-- What is written once stays as it is, whatever a program believes.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is written once', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER journal_written_once BEFORE UPDATE ON journal FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER settlements_written_once BEFORE UPDATE ON settlements FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER packages_written_once BEFORE UPDATE ON packages FOR EACH ROW EXECUTE FUNCTION refuse_change();
