-- a sum by group
SELECT c1 AS c0, sum(CAST(c0 AS DECIMAL(38,0))) AS c1 FROM r GROUP BY c1;

-- a count of everything
SELECT count(1L) AS c0 FROM r HAVING (count(1L) > 0L);

-- the least
SELECT c1 AS c0, min(c0) AS c1 FROM r GROUP BY c1;

-- numbered rows
SELECT * FROM (SELECT c1 AS c0, c0 AS c1, CAST(row_number() OVER (PARTITION BY c1 ORDER BY c0 DESC NULLS FIRST, c0 ASC NULLS FIRST, c1 ASC NULLS FIRST) AS BIGINT) AS c2 FROM r) WHERE (c2 <= 3L);

-- totals of two aggregates
SELECT c1 AS c0, sum(times) AS c1, sum((CASE WHEN (c0 IS NULL) THEN 0L ELSE times END)) AS c2, CAST(coalesce(sum((CAST(c0 AS DECIMAL(38,0)) * times)), CAST('0' AS DECIMAL(38,0))) AS DECIMAL(38,0)) AS c3, sum((CASE WHEN (c0 IS NULL) THEN 0L ELSE times END)) AS c4, CAST(0L AS DECIMAL(38,0)) AS c5 FROM (SELECT *, CAST('-1' AS BIGINT) AS times FROM r UNION ALL SELECT *, 1L AS times FROM s) GROUP BY c1;

-- totals summed
SELECT * FROM (SELECT c0, sum(c1) AS c1, sum(c2) AS c2, CAST(sum(c3) AS DECIMAL(38,0)) AS c3 FROM (SELECT * FROM r UNION ALL SELECT * FROM s) GROUP BY c0) WHERE (c1 > 0L);

-- rows of groups
SELECT /*+ BROADCAST(g) */ s.* FROM r s LEFT SEMI JOIN s g ON (s.c1 <=> g.c0);

-- derivation counts
SELECT * FROM (SELECT c0, sum(times) AS c1 FROM (SELECT c0, 1L AS times FROM r UNION ALL SELECT c0, CAST('-1' AS BIGINT) AS times FROM s WHERE (e IS NULL)) GROUP BY c0) WHERE (c1 <> 0L);
