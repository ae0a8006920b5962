"""The report: tables, figures and one page, as a pure function of records."""
