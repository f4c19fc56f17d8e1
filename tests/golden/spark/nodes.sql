-- one row
SELECT 1L AS c0;

-- scan
SELECT * FROM r;

-- values
SELECT * FROM VALUES (1L, 'a') AS v(c0, c1);

-- values without rows
SELECT CAST(NULL AS BIGINT) AS c0 WHERE FALSE;

-- values without columns
SELECT * FROM VALUES (TRUE) AS v(c0);

-- inner join
SELECT /*+ BROADCAST(b) */ * FROM r a JOIN s b ON (a.c0 <=> b.c1);

-- cross join
SELECT * FROM r a CROSS JOIN s b;

-- semi-join
SELECT a.* FROM r a LEFT SEMI JOIN s b ON (a.c0 <=> b.c0);

-- anti-join
SELECT /*+ SHUFFLE_HASH(b) */ * FROM r a LEFT ANTI JOIN s b ON (a.c0 <=> b.c0);

-- a filter below a join
SELECT * FROM r a CROSS JOIN s b WHERE (a.c0 IS NULL);

-- filter
SELECT * FROM r WHERE (c0 IS NULL) AND c1;

-- a filter above a projection
SELECT * FROM (SELECT c1 AS c0 FROM r) WHERE (c0 IS NULL);

-- projection
SELECT c1, c0 AS c1 FROM r;

-- group by
SELECT c0, sum(c1) AS c1 FROM r GROUP BY c0;

-- group by nothing
SELECT count(1L) FROM r HAVING (count(1L) > 0L);

-- a filter above groups
SELECT * FROM (SELECT c0 FROM r GROUP BY c0) WHERE c0;

-- distinct
SELECT DISTINCT c0 FROM r;

-- union
SELECT * FROM r UNION ALL SELECT c0 FROM s UNION ALL SELECT * FROM VALUES (1L) AS v(c0);

-- a union of limited parts
SELECT * FROM (SELECT * FROM r LIMIT 1) UNION ALL SELECT * FROM s;

-- distinct of a union
SELECT DISTINCT * FROM (SELECT * FROM r UNION ALL SELECT * FROM s);

-- repartition
SELECT DISTINCT * FROM (SELECT /*+ REPARTITION(4, c0) */ * FROM (SELECT * FROM r UNION ALL SELECT * FROM s));

-- sort and limit
SELECT c0 FROM r ORDER BY c0 ASC NULLS FIRST LIMIT 2;

-- a limit of a limit
SELECT * FROM (SELECT * FROM r LIMIT 3) LIMIT 2;

-- exists
SELECT 1L FROM r WHERE c0 LIMIT 1;
