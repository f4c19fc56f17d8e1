-- requests
SELECT c0, c1, CAST(((2L * 1L) + 0L) AS BIGINT) AS c2, CAST((0L * 1L) AS BIGINT) AS c3 FROM r UNION ALL SELECT c0, c1, CAST(((2L * c2) + 1L) AS BIGINT) AS c2, CAST((1L * c2) AS BIGINT) AS c3 FROM s;

-- ends of requests
SELECT (c2 % 2L), min((CASE WHEN (c0 IS NULL) THEN 0L WHEN (c1 IS NULL) THEN 1L END)), min(c0), max(c0) FROM r GROUP BY (c2 % 2L);

-- net effect with a key and upserts
SELECT * FROM (SELECT c0, c1, CAST((stays - was) AS BIGINT) AS c2, CAST(sum(stays) OVER (PARTITION BY c0) AS BIGINT) AS c3 FROM (SELECT c0, c1, was, (CASE WHEN ((c2 DIV 2L) < upserted) THEN 0L WHEN (c2 < 0L) THEN was ELSE (c2 % 2L) END) AS stays FROM (SELECT *, max(c3) OVER (PARTITION BY c0) AS upserted FROM (SELECT c0, c1, max(c2) AS c2, max(c3) AS c3, sum(was) AS was FROM (SELECT /*+ REPARTITION(4, c0) */ * FROM (SELECT c0, c1, c2, c3, 0L AS was FROM r UNION ALL SELECT c0, c1, CAST('-1' AS BIGINT) AS c2, 0L AS c3, was FROM s)) GROUP BY c0, c1)))) WHERE ((c2 <> 0L) OR (c3 > 1L));

-- net effect without a key
SELECT * FROM (SELECT c0, CAST((stays - was) AS BIGINT) AS c1, CAST(1L AS BIGINT) AS c2 FROM (SELECT c0, was, (CASE WHEN ((c1 DIV 2L) < upserted) THEN 0L WHEN (c1 < 0L) THEN was ELSE (c1 % 2L) END) AS stays FROM (SELECT *, 0L AS upserted FROM (SELECT c0, max(c1) AS c1, max(c2) AS c2, sum(was) AS was FROM (SELECT /*+ REPARTITION(4, c0) */ * FROM (SELECT c0, c1, c2, 0L AS was FROM r UNION ALL SELECT c0, CAST('-1' AS BIGINT) AS c1, 0L AS c2, was FROM s)) GROUP BY c0)))) WHERE ((c1 <> 0L) OR (c2 > 1L));

-- net effect without candidates
SELECT * FROM (SELECT c0, CAST((stays - was) AS BIGINT) AS c1, CAST(1L AS BIGINT) AS c2 FROM (SELECT c0, was, (CASE WHEN ((c1 DIV 2L) < upserted) THEN 0L WHEN (c1 < 0L) THEN was ELSE (c1 % 2L) END) AS stays FROM (SELECT *, 0L AS upserted FROM (SELECT c0, max(c1) AS c1, max(c2) AS c2, sum(was) AS was FROM (SELECT /*+ REPARTITION(4, c0) */ c0, c1, c2, 0L AS was FROM r) GROUP BY c0)))) WHERE ((c1 <> 0L) OR (c2 > 1L));

-- candidate rows
SELECT /*+ BROADCAST(f) */ s.* FROM r s LEFT SEMI JOIN s f ON (s.c0 <=> f.c0) AND (s.c0 IN (1L));

-- rows that share a key
SELECT s.* FROM r s LEFT SEMI JOIN (SELECT c0 FROM (SELECT s.* FROM r s LEFT SEMI JOIN s k ON (s.c0 <=> k.c0)) GROUP BY c0 HAVING (count(1L) > 1L) LIMIT 1) k ON (s.c0 <=> k.c0) LIMIT 2;
