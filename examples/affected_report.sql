-- What the views of affected.dl mean for the teams: aggregates, and a rule that pages a team once.
--
--   rederive check examples/affected.dl examples/affected_report.sql

CREATE VIEW exposure AS
  SELECT o.team, count(DISTINCT a.service) AS services, max(v.severity) AS worst
  FROM affected a JOIN owner o ON a.service = o.service JOIN advisory v ON a.advisory = v.id
  GROUP BY o.team;

-- The condition has one row for each team. It enters when the first critical advisory reaches the team, and stays while there is one.
CREATE RULE page_team
  WHEN SELECT team FROM exposure WHERE worst >= 90
  DO CALL page(team);
