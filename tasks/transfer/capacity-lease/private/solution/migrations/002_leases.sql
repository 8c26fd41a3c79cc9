-- Times are kept to the millisecond, the precision of the contract.
alter table pools
  add column number bigint generated always as identity unique,
  add column revision integer not null default 1,
  add column created_at timestamptz(3) not null default clock_timestamp(),
  add column imported jsonb;

create table leases (
  lease_id uuid primary key,
  number bigint generated always as identity unique,
  token text not null,
  owner_id text not null,
  start_at timestamptz(3) not null,
  end_at timestamptz(3) not null check (end_at > start_at),
  hold_seconds integer not null,
  hold_expires_at timestamptz(3),
  priority smallint not null,
  state text not null check (state in ('waiting', 'held', 'confirmed', 'active', 'released', 'expired', 'cancelled')),
  revision integer not null default 1,
  "grant" text,
  bypass_count smallint not null default 0 check (bypass_count between 0 and 3),
  created_at timestamptz(3) not null,
  ended_at timestamptz(3),
  imported jsonb,
  check ((hold_expires_at is not null) = (state = 'held')),
  check ((ended_at is not null) = (state in ('released', 'expired', 'cancelled')))
);
create index on leases (priority desc, number) where state = 'waiting';
create index on leases (owner_id, number);

create table lease_members (
  lease_id uuid not null references leases,
  pool_id text not null references pools,
  units integer not null check (units between 1 and 1000000),
  primary key (lease_id, pool_id)
);
create index on lease_members (pool_id, lease_id);

create table work (
  work_id uuid primary key default gen_random_uuid(),
  number bigint generated always as identity unique,
  kind text not null,
  aggregate_id text not null,
  state text not null default 'pending' check (state in ('pending', 'leased', 'succeeded', 'cancelled')),
  attempt integer not null default 0,
  due_at timestamptz(3) not null,
  lease_owner text,
  lease_expires_at timestamptz(3),
  created_at timestamptz(3) not null default clock_timestamp(),
  finished_at timestamptz(3),
  check ((lease_owner is not null) = (state = 'leased') and (lease_expires_at is not null) = (state = 'leased')),
  check ((finished_at is not null) = (state in ('succeeded', 'cancelled')))
);
create unique index work_waits_once on work (kind, aggregate_id) where state = 'pending';
create unique index work_open_once on work (kind, aggregate_id) where state in ('pending', 'leased') and kind <> 'queue.promote';
create index on work (due_at) where state = 'pending';
create index on work (lease_expires_at) where state = 'leased';
create index on work (aggregate_id) where state in ('pending', 'leased');
create index on work (finished_at) where finished_at is not null;

-- One row: its lock, held from an event's insertion to the commit, makes the sequence gapless and in commit order.
create table event_counter (id boolean primary key default true check (id), value bigint not null);
insert into event_counter (value) values (0);

create table events (
  sequence bigint primary key,
  aggregate_type text not null,
  aggregate_id text not null,
  body text not null,
  delivered_at timestamptz(3),
  attempts integer not null default 0,
  due_at timestamptz(3) not null default clock_timestamp(),
  claim_expires_at timestamptz(3)
);
create index on events (aggregate_type, aggregate_id, sequence);
create index events_undelivered on events (aggregate_type, aggregate_id, sequence) where delivered_at is null;
create index on events (due_at) where delivered_at is null;

create table answers (
  scope text not null,
  key text not null,
  fingerprint text not null,
  status smallint not null,
  etag text not null,
  body text not null,
  created_at timestamptz(3) not null default clock_timestamp(),
  primary key (scope, key)
);
create index on answers (created_at);
