-- Which run left a link.
CREATE INDEX artifacts_url ON artifacts (url, run_id) WHERE url <> '';
