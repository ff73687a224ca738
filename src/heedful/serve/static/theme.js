// @ts-check
// Before anything is drawn: the colours that were chosen here last, else those of the system.
'use strict';
{
  const chosen = localStorage.getItem('theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
}
