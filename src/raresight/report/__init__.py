"""What is shown: tables, figures and pages."""
